"""The doctor: checks an installation and names the action that helps."""
