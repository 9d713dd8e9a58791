"""The truth: everything that reads or writes Postgres. Nothing here knows the broker."""
