"""How alembic runs grns' revisions: shipped SQL, on an asyncpg connection or printed with --sql."""

from __future__ import annotations

import asyncio

import asyncpg
from alembic import context
from sqlalchemy import pool, text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import create_async_engine

TABLE, SCHEMA = "schema_version", "grns"


def _run(connection: Connection) -> None:
    # Two processes that upgrade at once: the second waits, then finds nothing to do. It waits before it looks
    # for anything, and sees what has come meanwhile: a schema that both find missing would be made twice.
    connection.execute(text("select pg_advisory_xact_lock(hashtext('grns.schema_version'))"))
    connection.execute(text("create schema if not exists grns"))
    context.configure(connection=connection, version_table=TABLE, version_table_schema=SCHEMA)
    with context.begin_transaction():
        context.run_migrations()


async def _run_online(url: str) -> None:
    engine = create_async_engine(
        "postgresql+asyncpg://",
        poolclass=pool.NullPool,
        isolation_level="READ COMMITTED",
        async_creator=lambda: asyncpg.connect(url),
    )
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_run)
    finally:
        await engine.dispose()


def _run_offline() -> None:
    context.configure(
        dialect_name="postgresql", as_sql=True, version_table=TABLE, version_table_schema=SCHEMA
    )
    with context.begin_transaction():
        context.execute("create schema if not exists grns")
        context.run_migrations()


if context.is_offline_mode():
    _run_offline()
else:
    asyncio.run(_run_online(context.config.attributes["url"]))
