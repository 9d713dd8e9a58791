"""Fuzzing: whatever anybody sends is an envelope, or is refused with a known word."""
