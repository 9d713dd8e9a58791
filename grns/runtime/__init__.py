"""What every long-running service shares."""
