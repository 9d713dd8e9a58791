"""Whoever comes in: over HTTP, with a key, as an agent, with a browser; their rows, their command lines."""
