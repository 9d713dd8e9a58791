"""Whoever comes in: over HTTP, with a key, as an agent, with a browser, and the command lines of these."""
