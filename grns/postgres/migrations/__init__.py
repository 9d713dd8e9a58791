"""Revisions of the schema: alembic keeps the order, the SQL is shipped beside it."""
