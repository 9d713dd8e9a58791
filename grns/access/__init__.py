"""API keys, principals, workspaces and their isolation."""
