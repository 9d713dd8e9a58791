"""Databases for a while, beside the user's own: made, dropped, and found where their maker was killed.

Whoever makes one keeps a session under its name, from before it is made until it is gone: one without
any is left over.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from grns.errors import UnusableError
from grns.postgres.database import Database
from grns.postgres.errors import translated

# As `read_scratch_databases.sql` knows them.
_PREFIX = "grns_bench_"
# A server that is busy writes down all that it holds in memory before it drops one.
_ANSWER_SECONDS = 300.0


def new_name() -> str:
    """Return the name of a database that does not exist yet."""
    return _PREFIX + secrets.token_hex(6)


@asynccontextmanager
async def announced(url: str, name: str) -> AsyncIterator[Database]:
    """Connect to the server, and be known there as who works with the scratch database `name`."""
    server = Database(url, name=name, size=2, is_tuned=False, answer_seconds=_ANSWER_SECONDS)
    async with server.opened(), server.session():
        yield server


async def left_over(server: Database) -> list[str]:
    """Return the names of scratch databases with which nobody works any more."""
    return [row["name"] for row in await server.run("read_scratch_databases")]


async def make(server: Database, name: str) -> None:
    """Make an empty database; `UnavailableError` where the role may not."""
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
    """Drop a database, whoever is still connected to it; done where it is not there."""
    await _run(server, name, "drop_statement")


async def _run(server: Database, name: str, which: str) -> None:
    """Run a statement that the server itself has put together, outside any transaction."""
    sql = (await server.run("name_scratch_database", name))[0][which]
    async with server.connection() as connection:
        with translated():
            await connection.execute(sql)
