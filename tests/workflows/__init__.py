"""Tasks that need others."""
