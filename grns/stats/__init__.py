"""Counts and issues, aggregated from the event log."""
