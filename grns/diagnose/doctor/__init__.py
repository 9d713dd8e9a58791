"""What is not as it should be in an installation, and what to do: findings, of what was read elsewhere."""
