"""Explain a task; examine an installation."""
