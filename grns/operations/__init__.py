"""Bulk operations on the tasks that a filter matches."""
