"""Whoever comes in: over HTTP, with a key, as an agent, with a browser; the rows and command lines of these."""
