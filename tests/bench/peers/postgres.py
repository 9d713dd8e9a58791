"""Peers that keep their jobs in Postgres: a database for each drain, and their tables to look at."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg

from tests.bench.peers.drain import measure
from tests.bench.peers.peer import PeerUnavailable
from tests.bench.peers.program import Program


@dataclass(frozen=True)
class JobTable:
    """Where a peer keeps the jobs that have not ended, and what is true of one that nobody has taken yet."""

    name: str
    untaken: str


class TableWatch:
    """Sees how far a worker is in the table of its jobs, all of which are there before it starts."""

    def __init__(self, connection: asyncpg.Connection, table: JobTable, *, rows: int, last: int) -> None:
        self._connection = connection
        self._rows = rows
        self._last = last
        self._count_untaken = f"select count(*) from {table.name} where {table.untaken}"
        # The job that was made last, by its key: only when it has gone is it worth looking for others.
        self._is_empty = (
            f"select case when exists (select from {table.name} where id = $1) then false"
            f" else not exists (select from {table.name}) end"
        )

    @classmethod
    async def on(cls, connection: asyncpg.Connection, table: JobTable, rows: int) -> TableWatch | None:
        """Return a watch on the table, or None where it does not have all of these jobs."""
        if await connection.fetchval("select to_regclass($1)", table.name) is None:
            return None
        found = await connection.fetchrow(f"select count(*) as rows, max(id) as last from {table.name}")
        if found is None or found["rows"] != rows:
            return None
        return cls(connection, table, rows=rows, last=found["last"])

    async def has_begun(self) -> bool:
        """Tell whether a job has been taken: counts all of them, but none runs before it is true."""
        return bool(await self._connection.fetchval(self._count_untaken) < self._rows)

    async def has_ended(self) -> bool:
        """Tell whether no job is left."""
        return bool(await self._connection.fetchval(self._is_empty, self._last))


class PostgresPeer:
    """A peer that keeps the jobs of a database in one table of it."""

    def __init__(self, program: Program, table: JobTable) -> None:
        self.name = program.name
        self._program = program
        self._table = table

    async def prepare(self, directory: Path) -> str:
        """Install the peer, and return its version."""
        return await self._program.install(directory)

    async def drain(self, postgres_url: str, rows: int) -> float:
        """Let one worker process run `rows` jobs that do nothing, and return jobs/s."""
        async with scratch_database(postgres_url) as url:
            said = await self._program.fill(url, rows)
            connection = await asyncpg.connect(url)
            try:
                watch = await TableWatch.on(connection, self._table, rows)
                if watch is None:
                    raise PeerUnavailable(f"{self.name} did not make {rows} jobs\n{said}".rstrip())
                await connection.execute("vacuum (analyze)")
                return await measure(self._program.worker(url), watch, rows)
            finally:
                await connection.close()


@asynccontextmanager
async def scratch_database(server_url: str) -> AsyncIterator[str]:
    """Make a database on the server of this URL, and drop it at the end, whoever uses it."""
    name = f"bench_{uuid4().hex}"
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute(f"create database {name}")
        try:
            yield urlsplit(server_url)._replace(path=f"/{name}").geturl()
        finally:
            await connection.execute(f"drop database {name} with (force)")
    finally:
        await connection.close()
