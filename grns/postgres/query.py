"""Statements of SQLAlchemy on connections of ours: compiled here, with their values as parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select
from sqlalchemy.dialects.postgresql import asyncpg as asyncpg_dialect

from grns.postgres.database import Connection, Database, Row, Session
from grns.postgres.errors import translated

# A filter that few rows pass makes Postgres look at many: nobody's lease depends on the answer.
_ANSWER_SECONDS = 60.0


async def run(database: Database | Session, wanted: Select[Any]) -> Sequence[Row]:
    """Run a statement that only reads, in a transaction of its own, and return its rows."""
    async with database.connection() as connection:
        # Its beginning and its end are asked of the server, too: it may be gone by then.
        with translated():
            async with connection.transaction(readonly=True):
                await connection.execute(f"set local statement_timeout = {1000 * _ANSWER_SECONDS:.0f}")
                return await fetch(connection, wanted)


async def fetch(connection: Connection, wanted: Select[Any]) -> Sequence[Row]:
    """Run a statement on a given connection, and return its rows."""
    sql, values = compiled(wanted)
    with translated():
        rows: Sequence[Row] = await connection.fetch(sql, *values, timeout=_ANSWER_SECONDS)
        return rows


def compiled(wanted: Select[Any]) -> tuple[str, list[Any]]:
    """Return a statement as text, and its values."""
    found = wanted.compile(
        dialect=asyncpg_dialect.dialect(),  # type: ignore[no-untyped-call]
        compile_kwargs={"render_postcompile": True},
    )
    return str(found), [found.params[name] for name in found.positiontup or ()]
