"""Clients of others, in other languages."""
