"""What the store's tests share: tasks on every road they can be on, and what the database holds of them.

No tests live here; the name keeps it among the files of the store's tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

import grns
from grns.client.client import Client
from grns.dev.servers import LocalPostgres
from grns.maintenance.retention import RULES
from grns.model import subjects
from grns.model.outcome import Claim, Finished, Outcome, Unclaimed, Verb
from grns.outbox.log import LogEntry
from grns.outbox.message import command_of
from grns.postgres.database import Database, Row
from grns.worker.claims import Claimant, Claims
from grns.worker.finishes import Finish, Finishes
from tests.support.harness import submit

LEASE_SECONDS = 15.0
WORKER = Claimant("worker-one", "default", "worker", {"noop": 3}, LEASE_SECONDS)
OTHER_WORKER = Claimant("worker-two", "default", "worker", {"noop": 3}, LEASE_SECONDS)
ERROR = '{"class": "ValueError", "message": "no such thing"}'
FINGERPRINT = "0f" * 8
ACTOR = "cli:ann@desk"  # who cancels and redrives here

# Where a task can be, by the steps that lead there.
ROADS = {
    "waiting": "delayed",
    "waiting_due": "delayed due",
    "queued": "submit",
    "queued_again": "submit claim release",
    "running": "submit claim",
    "running_late": "submit claim lapse",
    "running_last": "single claim",
    "running_last_late": "single claim lapse",
    "running_spared": "single claim release claim",
    "running_asked": "submit claim cancel",
    "running_asked_late": "submit claim cancel lapse",
    "running_asked_last": "single claim cancel lapse",
    "retry_wait": "submit claim retry",
    "retry_due": "submit claim retry due",
    "succeeded": "submit claim succeed",
    "failed": "submit claim fail",
    "dead": "single claim retry",
    "cancelled": "submit cancel",
    "cancelled_late": "submit claim cancel retry",
}


class Cleaner:
    """Empties one database between tests, on a connection that stays open: its plans are made once."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._loop = asyncio.new_event_loop()
        self._connection: asyncpg.Connection | None = None

    def empty(self) -> None:
        """Empty the database; connect again if a test has ended the connection."""
        try:
            self._loop.run_until_complete(self._empty())
        except (OSError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError):
            self._connection = None
            self._loop.run_until_complete(self._empty())

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.terminate()
            self._loop.run_until_complete(asyncio.sleep(0))  # the loop closes the socket in its next turn
        self._loop.close()

    async def _empty(self) -> None:
        if self._connection is None or self._connection.is_closed():
            settings = {"application_name": _CLEANER}
            self._connection = await asyncpg.connect(self.url, server_settings=settings)
            await self._connection.execute(
                f"create function pg_temp.empty() returns void language plpgsql as $${_EMPTY}$$"
            )
        await self._connection.execute("select pg_temp.empty()")


@pytest.fixture(scope="session")
def cleaner(postgres: LocalPostgres) -> Iterator[Cleaner]:
    """The database that tests of one run share; it goes with its server."""
    cleaner = Cleaner(asyncio.run(new_database(postgres)))
    yield cleaner
    cleaner.close()


@pytest.fixture
def shared_url(cleaner: Cleaner) -> str:
    """A migrated database, empty at each test's beginning; tests that change its schema need their own."""
    cleaner.empty()
    return cleaner.url


@pytest.fixture
async def shared(shared_url: str) -> AsyncIterator[Database]:
    """Connections to the shared database."""
    database = Database(shared_url, name="test", size=8)
    await database.connect()
    yield database
    await database.close()


@pytest.fixture
async def client(shared: Database) -> AsyncIterator[Client]:
    """A client of the shared database that has no broker."""
    async with grns.connect(database_url=shared.url, nats_url="nats://127.0.0.1:1") as client:
        yield client


async def empty(database: Database) -> None:
    """Delete all rows of a database but those of the migration."""
    async with database.connection() as connection:
        await connection.execute(f"do $${_EMPTY}$$")


_CLEANER = "test cleaner"
# Tasks first: their deletion is written down in other tables.
_TABLES = (
    "pauses", "pool_quotas", "budgets", "tasks", "events", "dead_letters", "processed_messages", "workers",
    "agents", "earlier_lives", "mail", "task_types", "failovers", "replays",
    "task_counts", "deleted_tasks", "kept_tasks", "task_minutes", "issues", "operations", "operation_tasks",
    "webhooks",
    "webhook_secrets", "webhook_deliveries", "api_keys", "ended_sessions", "saved_filters", "needs", "waits",
    "workflows", "follow_later", "task_pauses", "schedules", "schedule_runs", "limits",
    "limited_pools", "limit_keys", "limit_tokens", "unique_keys", "steps", "signals", "signal_waits",
    "event_waits", "progress", "questions", "labels", "tags", "texts", "words", "task_lines",
    "blob_refs", "blobs", "blob_objects", "usage", "usage_days",
)  # fmt: skip
_DELETIONS = "".join(
    f"if exists (select from grns.{table}) then delete from grns.{table}; end if;\n" for table in _TABLES
)
_EMPTY = f"""
begin
    perform pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and application_name <> '{_CLEANER}';
    {_DELETIONS}
    delete from grns.workspaces where workspace <> 'default';
    update grns.webhook_cursor set low = 0;
    update grns.leases set epoch = 0, owner = null, until = '-infinity';
    update grns.count_cursor set moves = 0, low = 0, counted = '{{}}';
    update grns.follow_cursor set moves = 0, low = 0, followed = '{{}}';
    update grns.event_cursor set low = 0;
    update grns.text_cursor set low = 0;
    update grns.server set system_identifier = null, timeline = null, seen_at = null;
    update grns.reaper_state
    set last_tick_at = null, reap_until = null, server_started_at = null, hold_until = null;
    update grns.relay_cursor set low = 0, published = '{{}}', is_idle = false;
end
"""


async def new_database(postgres: LocalPostgres) -> str:
    """Make one more database out of the run's template, and return its URL."""
    name = f"shared_{uuid4().hex}"
    connection = await asyncpg.connect(postgres.admin_url)
    try:
        await connection.execute(f"create database {name} template grns_template")
    finally:
        await connection.close()
    return postgres.admin_url.rsplit("/", 1)[0] + "/" + name


async def fetch(database: Database, sql: str, *arguments: Any) -> list[Row]:
    """Run a test's own SQL."""
    async with database.connection() as connection:
        rows: list[Row] = await connection.fetch(sql, *arguments)
        return rows


async def row_of(database: Database, task_id: str) -> dict[str, Any]:
    """Return all columns of a task."""
    return dict((await fetch(database, "select * from grns.tasks where id = $1", task_id))[0])


async def log_of(database: Database, task_id: str) -> list[dict[str, Any]]:
    """Return what the log has of a task, in order, and the commands that the relay publishes with it."""
    rows = await fetch(database, "select * from grns.events where task_id = $1 order by seq", task_id)
    return with_commands(rows)


def with_commands(rows: Iterable[asyncpg.Record]) -> list[dict[str, Any]]:
    """Return rows of the log, and behind each event that has a route the command that goes with it."""
    found: list[dict[str, Any]] = []
    for row in map(dict, rows):
        found.append(row)
        if row["route"] is None or row["kind"] == subjects.EXECUTE:
            continue
        if row["route"].startswith("@"):  # told with a hint
            found[-1] = {**row, "route": None}
            continue
        values = {name: row[name] for name in LogEntry._fields}
        entry = LogEntry(**{**values, "message_id": str(row["message_id"])})
        command = command_of(entry, row["route"])._asdict()
        found[-1] = {**row, "route": None}
        ids = {name: UUID(command[name]) for name in ("message_id", "causation_id")}
        found.append({**row, **command, **ids, "was": None, "actor": None, "task_type": None})
    return found


async def kinds_of(database: Database, task_id: str) -> list[str]:
    """Return the kinds of what the log has of a task, in order."""
    return [row["kind"] for row in await log_of(database, task_id)]


async def claim(
    database: Database, task_id: str, *, who: Claimant = WORKER, causation_id: UUID | None = None
) -> Claim:
    """Claim a task that can be claimed."""
    answer = await Claims(database, who, batch_limit=10).claim(task_id, causation_id)
    assert isinstance(answer, Claim), answer
    return answer


async def refusal(database: Database, task_id: str, *, who: Claimant = WORKER) -> str:
    """Try to claim a task that cannot be claimed, and return why."""
    answer = await Claims(database, who, batch_limit=10).claim(task_id)
    assert isinstance(answer, Unclaimed), answer
    assert answer.id == task_id
    return answer.reason


def outcome(verb: Verb) -> Outcome:
    """Return an outcome as a worker would make it."""
    if verb is Verb.SUCCEED:
        return Outcome(verb, result='{"answer": 42}')
    if verb is Verb.SNOOZE:
        return Outcome(verb, backoff_seconds=100.0)
    return Outcome(
        verb, error=ERROR, error_class="ValueError", fingerprint=FINGERPRINT, backoff_seconds=100.0
    )


def ending(claim: Claim, verb: Verb = Verb.SUCCEED) -> Finish:
    """Return the writing of an outcome."""
    return Finish(claim, outcome(verb), uuid4())


async def finish(database: Database, claim: Claim, verb: Verb = Verb.SUCCEED) -> Finished:
    """Write an outcome."""
    return await Finishes(database, batch_limit=10).finish(ending(claim, verb))


async def release(database: Database, *claims: Claim, have_begun: bool = True) -> dict[str, str]:
    """Give attempts back."""
    return await Finishes(database, batch_limit=10).release(claims, "shutdown", have_begun=have_begun)


async def cancel(database: Database, *ids: str, reason: str = "not needed") -> dict[str, str]:
    """Cancel tasks; returns the answers by id."""
    rows = await database.run("cancel", list(ids), reason, "default", ACTOR)
    return {row["id"]: row["answer"] for row in rows}


async def redrive(database: Database, *ids: str) -> dict[str, str]:
    """Open tasks again; returns the answers by id."""
    rows = await database.run("redrive", list(ids), "default", ACTOR, None)
    return {row["id"]: row["answer"] for row in rows}


async def lapse(database: Database, *ids: str) -> None:
    """Let the leases of tasks be over."""
    await fetch(
        database, "update grns.tasks set lease_until = now() - interval '1 s' where id = any($1)", list(ids)
    )


async def fall_due(database: Database, *ids: str) -> None:
    """Let tasks that wait be due."""
    await fetch(
        database,
        "update grns.tasks set next_attempt_at = now() - interval '1 s' where id = any($1)",
        list(ids),
    )


async def place(database: Database, road: str) -> Claim:
    """Bring a new task to where its road ends; returns its latest claim, or one that nobody was given."""
    task_id, held = "", None
    for step in ROADS[road].split():
        if step in _SUBMISSIONS:
            task_id = (await submit(database, causation_id=uuid4(), priority=1, **_SUBMISSIONS[step])).id
        elif step == "claim":
            held = await claim(database, task_id, causation_id=uuid4())
        elif step in _STEPS_OF_TASKS:
            await _STEPS_OF_TASKS[step](database, task_id)
        elif step == "release":
            assert held is not None
            assert (await release(database, held))[task_id] == "queued"
        else:
            assert held is not None
            await finish(database, held, Verb(step))
    return held or forged(task_id)


_SUBMISSIONS: dict[str, dict[str, Any]] = {
    "submit": {"payload": {"n": 1}},
    "single": {"max_attempts": 1},
    "delayed": {"delay_seconds": 100.0},
}
_STEPS_OF_TASKS: dict[str, Callable[[Database, str], Awaitable[Any]]] = {
    "due": fall_due,
    "lapse": lapse,
    "cancel": cancel,
}


def forged(task_id: str, *, attempt: int = 0, lease_id: UUID | None = None) -> Claim:
    """Return a claim that nobody was given."""
    return Claim(
        task_id, "noop", 1, "{}", attempt, 3, 0, lease_id or uuid4(), "trace", uuid4(), 0.0, 0.0
    )  # fmt: skip


@asynccontextmanager
async def stranger(database: Database) -> AsyncIterator[asyncpg.Connection]:
    """Open a transaction on a connection that is not ours; it is undone at the end, if still open."""
    connection = await asyncpg.connect(database.url)
    try:
        await connection.execute("begin")
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def locked(database: Database, *ids: str) -> AsyncIterator[asyncpg.Connection]:
    """Hold the rows of tasks locked in a stranger's transaction."""
    async with stranger(database) as connection:
        await connection.execute("select from grns.tasks where id = any($1) for update", list(ids))
        yield connection


async def deleted(database: Database, statement: str, *arguments: Any) -> int:
    """Delete one page as the janitor does; return how many rows went."""
    assert statement in {rule.statement for rule in RULES} | {"delete_operations", "delete_webhooks"}
    return len(await database.run(statement, *arguments))


async def is_waiting_for_lock(database: Database, application: str = "grns test") -> bool:
    """Say whether a statement of ours waits for a lock."""
    rows = await fetch(
        database,
        "select from pg_stat_activity where datname = current_database() and application_name = $1"
        " and wait_event_type = 'Lock'",
        application,
    )
    return bool(rows)


def by_id(rows: Sequence[Row]) -> dict[str, Row]:
    """Return rows by their `id`."""
    return {row["id"]: row for row in rows}
