"""Limits: how many tasks run at once, and how many begin in a time."""
