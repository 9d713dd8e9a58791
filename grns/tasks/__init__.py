"""Submit, read, search, edit and pause: one module per verb."""
