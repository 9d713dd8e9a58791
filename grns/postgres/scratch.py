"""Temporary databases on the user's server: created, dropped, and found again after a crash.

A process keeps a session with the name of its database from before it is created until it is dropped: a
database without such a session is left over.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from grns.errors import UnusableError
from grns.postgres.database import Database
from grns.postgres.errors import translated

# The same prefix is in `read_scratch_databases.sql`.
_PREFIX = "grns_bench_"
# A busy server writes its buffers to disk before it drops a database.
_ANSWER_SECONDS = 300.0


def new_name() -> str:
    """Return an unused name for a temporary database."""
    return _PREFIX + secrets.token_hex(6)


@asynccontextmanager
async def announced(url: str, name: str) -> AsyncIterator[Database]:
    """Connect to the server with a session that marks the database `name` as in use."""
    server = Database(url, name=name, size=2, is_tuned=False, answer_seconds=_ANSWER_SECONDS)
    async with server.opened(), server.session():
        yield server


async def left_over(server: Database) -> list[str]:
    """Return temporary databases that no process uses."""
    return [row["name"] for row in await server.run("read_scratch_databases")]


async def make(server: Database, name: str) -> None:
    """Create an empty database; raises `UnusableError` if the role lacks the permission."""
    try:
        await _run(server, name, "make_statement")
    except UnusableError as error:
        if not isinstance(error.__cause__, asyncpg.InsufficientPrivilegeError):
            raise
        role = (await server.run("read_role"))[0]["role"]
        refused = UnusableError(
            f"the role {role} may not create databases, and a scratch database is needed:"
            f" have a superuser run `alter role {role} createdb`, or name another role in GRNS_DATABASE_URL"
        )
        refused.add_note(f"psql -c 'alter role {role} createdb'  (as a superuser)")
        raise refused from error


async def drop(server: Database, name: str) -> None:
    """Drop a database if it exists, also with open connections."""
    await _run(server, name, "drop_statement")


async def _run(server: Database, name: str, which: str) -> None:
    """Run a statement that the server has formatted, outside any transaction."""
    sql = (await server.run("name_scratch_database", name))[0][which]
    async with server.connection() as connection:
        with translated():
            await connection.execute(sql)
