"""Run SQLAlchemy statements on our connections, with their values as parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select
from sqlalchemy.dialects.postgresql import asyncpg as asyncpg_dialect

from grns.postgres.database import Connection, Database, Row, Session
from grns.postgres.errors import translated

# A filter that few rows match may read many rows; no lease depends on the answer.
_ANSWER_SECONDS = 60.0


async def run(database: Database | Session, query: Select[Any]) -> Sequence[Row]:
    """Run a read-only statement in a transaction of its own, and return its rows."""
    async with database.connection() as connection:
        # The server may also be gone when the transaction begins or ends.
        with translated():
            async with connection.transaction(readonly=True):
                await connection.execute(f"set local statement_timeout = {1000 * _ANSWER_SECONDS:.0f}")
                return await fetch(connection, query)


async def fetch(connection: Connection, query: Select[Any]) -> Sequence[Row]:
    """Run a statement on a given connection, and return its rows."""
    sql, values = compiled(query)
    with translated():
        rows: Sequence[Row] = await connection.fetch(sql, *values, timeout=_ANSWER_SECONDS)
        return rows


def compiled(query: Select[Any]) -> tuple[str, list[Any]]:
    """Return a statement as text, and its values."""
    result = query.compile(
        dialect=asyncpg_dialect.dialect(),  # type: ignore[no-untyped-call]
        compile_kwargs={"render_postcompile": True},
    )
    return str(result), [result.params[name] for name in result.positiontup or ()]
