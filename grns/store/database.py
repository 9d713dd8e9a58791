"""The connections of one process to Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg

from grns.errors import OutcomeUnknown, SettingsError, Unavailable
from grns.store.fault import Unusable, translated
from grns.store.statement import statement
from grns.telemetry import failpoint

Connection = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy
Row = asyncpg.Record

# The hot statements look rows up by primary key, in batches. These keep a planner that has
# no statistics yet (or stale ones) from answering them by reading the whole table.
_PLANNER = {
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_memoize": "off",  # no id is asked for twice
    "enable_bitmapscan": "off",  # reads all that is due to sort it, where the first few are wanted
}
_LOCK_SECONDS = 2.0
# What nobody waits for any more, the server need not go on with: its locks are in the way of others.
_GIVEN_UP_SECONDS = 1.0
_UTC = {"timezone": "UTC"}
# A guard that has waited for a row, or comes after others have written it, judges what the row is by then.
_ISOLATION = {"default_transaction_isolation": "read committed"}
_FOREVER = 2**62


def _timeouts(answer_seconds: float) -> dict[str, str]:
    """Return the server's bounds: it gives a lock up before we do, and a statement soon after us."""
    lock_seconds = min(_LOCK_SECONDS, answer_seconds / 2)
    return {
        "lock_timeout": f"{1000 * lock_seconds:.0f}ms",
        "statement_timeout": f"{1000 * (answer_seconds + _GIVEN_UP_SECONDS):.0f}ms",
    }


async def _keep(_connection: asyncpg.Connection) -> None:
    """Skip the pool's reset between statements: ours leave nothing behind."""


class Database:
    """A pool of connections, and the statements run on them.

    `answer_seconds` bounds the wait for each answer; an answer that never comes is
    `OutcomeUnknown`, a connection that cannot be had `Unavailable`. One `for_handlers` is as the
    server is set up, opens nothing until somebody borrows, and lets borrowers wait for their turn.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        size: int = 4,
        is_tuned: bool = True,
        answer_seconds: float = 30.0,
        for_handlers: bool = False,
    ) -> None:
        self._url = url
        self._name = name
        self._size = size
        self._is_tuned = is_tuned and not for_handlers
        self._answer_seconds = answer_seconds
        self._turn_seconds = None if for_handlers else answer_seconds
        self._kept = 0 if for_handlers else 1
        self._pool: asyncpg.Pool | None = None

    @property
    def url(self) -> str:
        """The URL, with its password: for those who need connections of another kind."""
        return self._url

    @property
    def size(self) -> int:
        """How many connections there are at most."""
        return self._size

    async def connect(self) -> None:
        """Open the first connection, where one is kept, or say why it cannot be had."""
        settings = {"application_name": f"grns {self._name}"[:63]}
        if self._is_tuned:
            settings |= _PLANNER | _timeouts(self._answer_seconds) | _UTC | _ISOLATION
        try:
            with translated():
                self._pool = await asyncpg.create_pool(
                    self._url,
                    min_size=self._kept,
                    max_size=self._size,
                    max_queries=_FOREVER,
                    command_timeout=self._answer_seconds,
                    timeout=min(10.0, self._answer_seconds),
                    reset=_keep,
                    server_settings=settings,
                )
        except (ValueError, TypeError) as error:
            raise SettingsError(f"GRNS_DATABASE_URL is no URL of a PostgreSQL database: {error}") from error
        except OutcomeUnknown as error:
            raise Unavailable(f"{error} - is it running, and is GRNS_DATABASE_URL right?") from error

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Be open for a while."""
        await self.connect()
        try:
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        """Close all connections; those in use are cut."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            pool.terminate()

    async def run(self, name: str, *arguments: Any) -> Sequence[Row]:
        """Run one statement by its name, in a transaction of its own, and return its rows."""
        async with self.connection() as connection:
            return await run(connection, name, *arguments)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """Lend one connection for long: once it breaks, everything asked of it fails."""
        async with self.connection() as connection:
            yield Session(connection)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend one connection; one that broke meanwhile is not lent again."""
        if (pool := self._pool) is None:
            raise Unusable("the connection to Postgres is closed")
        try:
            with translated():
                connection = await pool.acquire(timeout=self._turn_seconds)
        except OutcomeUnknown as error:
            raise Unavailable(str(error)) from error
        try:
            yield connection
        except OutcomeUnknown:
            if not _is_broken(connection):
                connection.terminate()
            raise
        finally:
            with translated():
                await pool.release(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Lend one connection inside a transaction; what the borrower changed on it is reset afterwards.

        It is `read committed`, whatever the server's default: renewals write the row that it will finish.
        """
        async with self.connection() as connection:
            is_lent = False
            try:
                async with connection.transaction(isolation="read_committed"):
                    is_lent = True
                    yield connection
                    is_lent = False
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
                if _is_broken(connection):
                    raise OutcomeUnknown(f"Postgres went away inside a transaction: {error}") from error
                if isinstance(error, OSError) and not is_lent:  # none of the borrower's
                    raise OutcomeUnknown("no answer to the begin or end of a transaction") from error
                raise
            finally:
                if not _is_broken(connection):
                    with translated():
                        await connection.reset()


class Session:
    """One connection: its statements see one server, or an error."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def run(self, name: str, *arguments: Any) -> Sequence[Row]:
        """Run one statement by its name, in a transaction of its own, and return its rows."""
        return await run(self._connection, name, *arguments)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend the connection."""
        yield self._connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Lend the connection inside a transaction, or as a part of the one that it is in."""
        async with self._connection.transaction(isolation="read_committed"):
            yield self._connection


def _is_broken(connection: Connection) -> bool:
    """Say whether a borrowed connection is gone; the pool has taken back one whose server hung up."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True


async def run(connection: Connection, name: str, *arguments: Any) -> Sequence[Row]:
    """Run one statement by its name on a given connection."""
    if failpoint.ARMED:
        failpoint.reach(f"{name}.asked", connection.terminate)
    with translated():
        rows: Sequence[Row] = await connection.fetch(statement(name), *arguments)
        if failpoint.ARMED:  # it has committed, and we are not to know
            failpoint.reach(f"{name}.answered", partial(_lose, connection))
    return rows


def _lose(connection: Connection) -> None:
    connection.terminate()
    raise ConnectionResetError("failpoint: the connection broke before the answer")
