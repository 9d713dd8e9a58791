"""The connections of one process to Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from asyncpg.transaction import Transaction

from grns.errors import OutcomeUnknownError, SettingsError, UnavailableError, UnusableError
from grns.model.blob import BlobRules
from grns.model.vault import Vault
from grns.postgres.errors import DRIVER_ERRORS, translated
from grns.postgres.statements import statement
from grns.telemetry import failpoint

Connection = asyncpg.Connection | PoolConnectionProxy
Row = asyncpg.Record
Noun = TypeVar("Noun")
# Calls a function again and again until Postgres can be reached.
Patiently = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]

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
# The server ends a statement soon after its caller gave up: its locks would block others.
_GIVEN_UP_SECONDS = 1.0
_UNLISTEN_SECONDS = 1.0
_UTC = {"timezone": "UTC"}
# A guard that has waited for a row must see its latest version.
_ISOLATION = {"default_transaction_isolation": "read committed"}
_FOREVER = 2**62


def _timeouts(answer_seconds: float) -> dict[str, str]:
    """Return timeouts of the server: for locks shorter than ours, for statements a little longer."""
    lock_seconds = min(_LOCK_SECONDS, answer_seconds / 2)
    return {
        "lock_timeout": f"{1000 * lock_seconds:.0f}ms",
        "statement_timeout": f"{1000 * (answer_seconds + _GIVEN_UP_SECONDS):.0f}ms",
    }


async def _keep(_connection: asyncpg.Connection) -> None:
    """Skip the pool's reset between statements: ours change no session state."""


class Database:
    """A pool of connections, and the statements run on them.

    `answer_seconds` bounds the wait for each answer. A missing answer raises `OutcomeUnknownError`, a missing
    connection `UnavailableError`. A pool `for_handlers` keeps the server's settings, opens its first
    connection on first use, and lets borrowers wait for their turn. `vault` seals and opens what is secret in
    what is stored; `blob_rules` bound what is put.
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
        vault: Vault | None = None,
        blob_rules: BlobRules | None = None,
    ) -> None:
        self.vault = vault or Vault()
        self.blob_rules = blob_rules or BlobRules()
        self._url = url
        self._name = name
        self._size = size
        self._is_tuned = is_tuned and not for_handlers
        self._answer_seconds = answer_seconds
        self._turn_seconds = None if for_handlers else answer_seconds
        self._opens_first = not for_handlers
        self._pool: asyncpg.Pool | None = None
        self._endings: set[asyncio.Future[tuple[bool, Exception | None]]] = set()

    @property
    def url(self) -> str:
        """The URL with its password, for other kinds of connections."""
        return self._url

    @property
    def size(self) -> int:
        """The maximum number of connections."""
        return self._size

    async def connect(self) -> None:
        """Open the first connection, unless the pool is for handlers; raise if it cannot be opened."""
        settings = {"application_name": f"grns {self._name}"[:63]}
        if self._is_tuned:
            settings |= _PLANNER | _timeouts(self._answer_seconds) | _UTC | _ISOLATION
        try:
            with translated():
                # With a minimum, the pool logs a traceback a second while Postgres is away.
                self._pool = await asyncpg.create_pool(
                    self._url,
                    min_size=0,
                    max_size=self._size,
                    max_queries=_FOREVER,
                    max_cacheable_statement_size=0,  # a statement of any size is planned once
                    command_timeout=self._answer_seconds,
                    timeout=min(10.0, self._answer_seconds),
                    reset=_keep,
                    server_settings=settings,
                )
                if self._opens_first:
                    async with self._pool.acquire():
                        pass
        except (ValueError, TypeError) as error:
            raise SettingsError(f"GRNS_DATABASE_URL is not a PostgreSQL URL: {error}") from error
        except OutcomeUnknownError as error:
            await self.close()
            raise UnavailableError(f"{error} - is it running, and is GRNS_DATABASE_URL right?") from error

    @asynccontextmanager
    async def opened(self, patiently: Patiently | None = None) -> AsyncIterator[None]:
        """Keep the pool open in the block; `patiently` calls `connect` until it succeeds."""
        await (self.connect() if patiently is None else patiently(self.connect))
        try:
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        """Close all connections, also those in use."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            pool.terminate()

    async def run(self, name: str, *arguments: Any) -> Sequence[Row]:
        """Run one statement by its name, in a transaction of its own, and return its rows."""
        async with self.connection() as connection:
            return await run(connection, name, *arguments)

    async def fetch(self, noun: type[Noun], name: str, *arguments: Any) -> list[Noun]:
        """Run one statement as `run` does, and return its rows as objects of a dataclass."""
        return [build(noun, row) for row in await self.run(name, *arguments)]

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """Lend one connection for a long time: once it breaks, all its statements fail."""
        async with self.connection() as connection:
            yield Session(connection, self.vault, self.blob_rules)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend one connection; the pool drops it if it broke."""
        pool, connection = await self._borrow()
        try:
            yield connection
        except OutcomeUnknownError:
            if not _is_broken(connection):
                connection.terminate()
            raise
        finally:
            with translated():
                await pool.release(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Lend one connection inside a transaction; its session state is reset afterwards.

        The transaction is `read committed` whatever the server's default, because renewals write the row that
        it will finish. A separate asyncio task ends it: even if the borrower is cancelled repeatedly, no
        connection stays idle in a transaction or returns to the pool with the borrower's role.
        """
        pool, connection = await self._borrow()
        transaction = connection.transaction(isolation="read_committed")
        try:
            await transaction.start()
        except BaseException as error:
            _terminate(connection)
            with suppress(*DRIVER_ERRORS):
                await pool.release(connection)
            if isinstance(error, DRIVER_ERRORS):
                raise OutcomeUnknownError(f"Postgres did not begin a transaction: {error}") from error
            raise
        raised: BaseException | None = None
        try:
            yield connection
        except BaseException as error:
            raised = error
        ending = asyncio.ensure_future(_end(pool, connection, transaction, commits=raised is None))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        is_broken, failure = await asyncio.shield(ending)
        cause = raised if raised is not None else failure
        if is_broken and isinstance(cause, DRIVER_ERRORS):
            raise OutcomeUnknownError(f"Postgres went away inside a transaction: {cause}") from cause
        if raised is None and isinstance(failure, OSError):
            raise OutcomeUnknownError("no answer to the end of a transaction") from failure
        if cause is not None:
            raise cause

    async def _borrow(self) -> tuple[asyncpg.Pool, PoolConnectionProxy]:
        """Return a connection, and the pool that it must return to."""
        if (pool := self._pool) is None:
            raise UnusableError("the connection to Postgres is closed")
        try:
            with translated():
                return pool, await pool.acquire(timeout=self._turn_seconds)
        except OutcomeUnknownError as error:
            raise UnavailableError(str(error)) from error


class Session:
    """One connection: all its statements reach the same server, or fail."""

    def __init__(
        self, connection: Connection, vault: Vault | None = None, blob_rules: BlobRules | None = None
    ) -> None:
        self.vault = vault or Vault()
        self.blob_rules = blob_rules or BlobRules()
        self._connection = connection

    async def run(self, name: str, *arguments: Any) -> Sequence[Row]:
        """Run one statement by its name, in a transaction of its own, and return its rows."""
        return await run(self._connection, name, *arguments)

    async def fetch(self, noun: type[Noun], name: str, *arguments: Any) -> list[Noun]:
        """Run one statement as `run` does, and return its rows as objects of a dataclass."""
        return [build(noun, row) for row in await self.run(name, *arguments)]

    @asynccontextmanager
    async def listening(self, channel: str, on_notify: Callable[[], None]) -> AsyncIterator[None]:
        """Call `on_notify` in the block for each NOTIFY on a channel that reaches this connection."""

        def hear(*_notification: object) -> None:
            on_notify()

        with translated():
            await self._connection.add_listener(channel, hear)
        try:
            yield
        finally:
            with suppress(*DRIVER_ERRORS):  # a broken connection listens no more
                async with asyncio.timeout(_UNLISTEN_SECONDS):
                    await self._connection.remove_listener(channel, hear)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend the connection."""
        yield self._connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Lend the connection inside a transaction, or a savepoint if it is in one."""
        async with self._connection.transaction(isolation="read_committed"):
            yield self._connection


async def _end(
    pool: asyncpg.Pool, connection: PoolConnectionProxy, transaction: Transaction, *, commits: bool
) -> tuple[bool, Exception | None]:
    """End a transaction and return its connection; return whether it broke, and the error of a commit."""
    failure: Exception | None = None
    try:
        await (transaction.commit() if commits else transaction.rollback())
    except DRIVER_ERRORS as error:
        failure = error
    is_broken = _is_broken(connection)
    try:
        if failure is not None and not commits:
            _terminate(connection)  # the server rolls back
        elif not is_broken:
            await connection.reset()
    except DRIVER_ERRORS:
        _terminate(connection)
    with suppress(*DRIVER_ERRORS):
        await pool.release(connection)
    return is_broken, failure if commits else None


def _terminate(connection: Connection) -> None:
    if not _is_broken(connection):
        connection.terminate()


def _is_broken(connection: Connection) -> bool:
    """Return whether a borrowed connection is closed; the pool takes one back when its server closes it."""
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
        if failpoint.ARMED:  # the statement has committed, but its answer is lost
            failpoint.reach(f"{name}.answered", partial(_lose, connection))
    return rows


def build(noun: type[Noun], row: Row | Mapping[str, Any]) -> Noun:
    """Return a row as an object of a dataclass, whose fields are columns of it.

    The row may have more columns, which describe the page. Raises `KeyError` if it lacks one.
    """
    return noun(**{name: row[name] for name in noun.__dataclass_fields__})  # type: ignore[attr-defined]


def _lose(connection: Connection) -> None:
    connection.terminate()
    raise ConnectionResetError("failpoint: the connection broke before the answer")
