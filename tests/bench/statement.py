"""What Postgres is asked: statements counted by the server itself, by database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from grns.dev.servers.identity import postgres_directory
from tests.bench.ground import Ground, ground

_LIBRARY = "pg_stat_statements"
_CALLS = """
    select coalesce(sum(s.calls), 0)::bigint from pg_stat_statements s
    join pg_database d on d.oid = s.dbid
    where d.datname = $1 and strpos(s.query, $2) > 0
"""
_TRANSACTIONS = "select xact_commit + xact_rollback from pg_stat_database where datname = $1"


class Statements:
    """Counts what was asked of each database. `is_exact` where the server has `pg_stat_statements`.

    Where it has not, transactions are counted, which is nearly the same: ours have one statement each.
    """

    def __init__(self, admin: asyncpg.Connection, *, is_exact: bool) -> None:
        self._admin = admin
        self.is_exact = is_exact

    async def count(self, database: str) -> int:
        """Return how many there were."""
        if self.is_exact:
            return await self.count_with(database, "")
        return int(await self._admin.fetchval(_TRANSACTIONS, database))

    async def count_with(self, database: str, words: str) -> int:
        """Return how many of those there were whose text has these words; only where it is exact."""
        return int(await self._admin.fetchval(_CALLS, database, words))


@asynccontextmanager
async def counting_ground(directory: Path) -> AsyncIterator[tuple[Ground, Statements]]:
    """Run a server that counts: another one than for throughput, for counting costs some per cent."""
    is_exact = _is_installed()
    settings = {"shared_preload_libraries": _LIBRARY} if is_exact else {}
    async with ground(directory, settings) as here:
        if is_exact:
            await here.admin.execute(f"create extension {_LIBRARY}")
        yield here, Statements(here.admin, is_exact=is_exact)


def _is_installed() -> bool:
    return any((postgres_directory().parent / "lib").rglob(f"{_LIBRARY}.*"))
