"""grns."""
