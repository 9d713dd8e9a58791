"""Tasks that need other tasks."""
