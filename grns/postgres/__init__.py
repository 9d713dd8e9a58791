"""Connections, statements, migrations and errors of PostgreSQL."""
