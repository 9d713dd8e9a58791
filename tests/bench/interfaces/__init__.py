"""Measures API, dashboard and bulk redrives with a million tasks. `make bench-interfaces`."""
