"""Pools that run as they are, and that are there to be copied: `grns worker start workers.digest:pool`."""
