"""Rejected messages: kept, listed, redriven."""
