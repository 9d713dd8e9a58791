"""The facts, by those they happen to."""
