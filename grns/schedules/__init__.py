"""Tasks that are submitted again and again, at times of the clock or in intervals."""
