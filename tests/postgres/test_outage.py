"""What an outage of Postgres, a cancelled borrower and a hostile text leave behind: nothing that hurts."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import time
from collections.abc import Awaitable, Callable

import asyncpg
import pytest
import structlog

from grns.access.isolation import as_tenant
from grns.errors import OutcomeUnknownError, UnavailableError, UnusableError
from grns.maintenance.janitor import Janitor
from grns.model.outcome import Claim
from grns.postgres.database import Database
from grns.runtime.service import wait_for_postgres
from grns.telemetry import log
from grns.telemetry.service_signals import ChoresFailed, PostgresAwaited
from grns.telemetry.task_signals import AttemptFailed, AttemptReleased
from grns.worker.context import Context
from grns.worker.pool import Pool
from tests.support.harness import eventually, settings_for, submit
from tests.support.operations import SignalRecorder
from tests.support.store import claim, fetch, kinds_of, row_of
from tests.worker.test_executor import Stage, stage

__all__ = ["stage"]

_OURS = "select pid, state, usename, query from pg_stat_activity where application_name = 'grns test'"


# ---------------------------------------------------------------- a borrower that is cancelled


async def test_transaction_cancelled_at_any_moment_leaves_no_backend_in_it(database: Database) -> None:
    """L7: neither `idle in transaction`, nor a connection that went back with the tenant's role."""

    async def borrow() -> None:
        async with as_tenant(database, "acme") as session:
            await session.run("count_states", "acme")
            await asyncio.sleep(0)

    for steps in range(60):
        borrowing = asyncio.create_task(borrow())
        for _ in range(steps):
            await asyncio.sleep(0)
        for _ in range(50):  # as anyio cancels: again and again until it has ended
            borrowing.cancel()
            await asyncio.sleep(0)
            if borrowing.done():
                break
        await asyncio.wait({borrowing}, timeout=5)
        assert borrowing.done()

    async def is_calm() -> bool:
        rows = await fetch(database, _OURS + " and state like 'idle in transaction%'")
        return not rows and not database._endings

    await eventually(is_calm)
    for _ in range(database.size):
        async with database.connection() as connection:
            assert await connection.fetchval("select current_user = session_user") is True


async def test_transaction_whose_server_hangs_up_is_an_unknown_outcome(database: Database) -> None:
    """Reliability: whatever asyncpg raises then, the caller gets an error of grns."""

    async def hang_up() -> None:
        async with database.transaction() as connection:
            connection.terminate()
            await connection.execute("select 1")

    with pytest.raises(OutcomeUnknownError):
        await hang_up()


async def test_transaction_that_a_constraint_refuses_at_its_end_raises_the_borrowers_error(
    database: Database,
) -> None:
    await fetch(database, "create table parent (id int primary key)")
    await fetch(database, "create table child (id int references parent deferrable initially deferred)")

    async def insert() -> None:
        async with database.transaction() as connection:
            await connection.execute("insert into child values (1)")

    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await insert()
    async with database.connection() as connection:
        assert await connection.fetchval("select count(*) from child") == 0


# ---------------------------------------------------------------- the handler's transaction


def _outage(times: int) -> Callable[[Context], Awaitable[None]]:
    """Return a handler whose connection breaks inside its transaction, at its first attempts."""

    async def handle(task: Context) -> None:
        async with task.transaction() as transaction:
            if task.attempt <= times:
                transaction.connection.terminate()
            await transaction.connection.execute("select 1")
            transaction.complete("done")

    return handle


def serve(stage: Stage, handler: Callable[[Context], Awaitable[None]]) -> None:
    """Let a handler do what the worker does."""
    stage.executor.handlers._handlers["noop"] = Pool("worker").task("noop")(handler)


@pytest.fixture
async def claimed(stage: Stage, shared: Database) -> Claim:
    """A task of the worker's, claimed."""
    return await claim(shared, (await submit(shared)).id)


async def test_handlers_transaction_in_an_outage_does_not_count_as_an_attempt(
    stage: Stage, shared: Database, claimed: Claim
) -> None:
    """Reliability: it is known not to have committed, and no fault of the handler."""
    serve(stage, _outage(times=1))
    await stage.executor.run(claimed)
    row = await row_of(shared, claimed.id)
    assert (row["status"], row["attempt"], row["uncounted_attempts"]) == ("queued", 1, 1)
    assert [signal for signal in stage.emitted if isinstance(signal, AttemptFailed)] == []
    assert [signal for signal in stage.emitted if isinstance(signal, AttemptReleased)]
    await stage.executor.run(await claim(shared, claimed.id))
    assert (await row_of(shared, claimed.id))["status"] == "succeeded"
    assert (await kinds_of(shared, claimed.id)).count("evt.task.released") == 1


async def test_handlers_transaction_in_outage_after_outage_ends_dead(
    stage: Stage, shared: Database, claimed: Claim
) -> None:
    """Reliability: given back as often as the task may be attempted, and then each counts (I3)."""
    serve(stage, _outage(times=99))
    await stage.executor.run(claimed)
    for _ in range(20):
        if (await row_of(shared, claimed.id))["status"] != "queued":
            break
        await stage.executor.run(await claim(shared, claimed.id))
    row = await row_of(shared, claimed.id)
    assert row["status"] == "dead"
    assert row["attempt"] - row["uncounted_attempts"] <= row["attempt_limit"]


# ---------------------------------------------------------------- starting without Postgres


async def test_patiently_waits_for_postgres_and_says_so() -> None:
    """Reliability: a process that starts while Postgres is away waits for it."""
    emitted, answers = (
        SignalRecorder(),
        iter([UnavailableError("away"), OutcomeUnknownError("hung up"), None]),
    )

    async def connect() -> str:
        if (error := next(answers)) is not None:
            raise error
        return "there"

    assert await wait_for_postgres(connect, emit=emitted.receive) == "there"
    assert [signal.error for signal in emitted.of(PostgresAwaited)] == ["away", "hung up"]


async def test_patiently_gives_up_where_waiting_does_not_help() -> None:
    async def connect() -> None:
        raise UnusableError("password authentication failed")

    with pytest.raises(UnusableError):
        await wait_for_postgres(connect, emit=SignalRecorder().receive)


async def test_pool_of_a_server_that_is_away_logs_no_traceback(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """Reliability: asyncpg restores a pool's minimum itself, and logs a traceback for each try."""
    with caplog.at_level(logging.DEBUG, logger="asyncpg"):
        async with database.connection() as connection:
            pid = await connection.fetchval("select pg_backend_pid()")
        database._pool._connect_args = ["postgresql://nobody@127.0.0.1:1/none"]  # type: ignore[union-attr]
        async with database.connection() as connection:
            await connection.execute("select 1")
            connection.terminate()
        await asyncio.sleep(1.2)  # longer than the first pause of asyncpg's own attempts
    assert pid
    assert caplog.records == []


async def test_janitor_in_an_outage_writes_one_line_a_round(database: Database) -> None:
    """Reliability: 17 chores that fail for one reason are one line, with their names."""
    emitted = SignalRecorder()
    settings = settings_for(database.url)
    janitor = _janitor(database, emitted, settings.janitor_interval_seconds)
    await database.close()
    await janitor.tick()
    told = emitted.of(ChoresFailed)
    assert len(told) <= 2, "one for each reason"
    assert {"partitions", "tasks", "workers"} < {chore for one in told for chore in one.chores}


def _janitor(database: Database, emitted: SignalRecorder, seconds: float) -> Janitor:
    from grns.bootstrap import services as daemons
    from grns.bootstrap.app import App

    app = App(settings_for(database.url, janitor_interval_seconds=seconds), (emitted,))
    found = daemons.janitor(app, database, app.transport("test"))
    assert isinstance(found, Janitor)
    return found


# ---------------------------------------------------------------- the log


@pytest.mark.parametrize("format", ["console", "json"])
def test_log_shows_no_control_character_of_a_hostile_text(format: str) -> None:
    """L1: a title, a cleared screen and a hyperlink in an error's class and message."""
    stream = io.StringIO()
    log.configure(level="info", format=format, stream=stream)
    try:
        hostile = "\x1b]0;pwned\x07\x1b[2J\x1b]8;;http://evil\x1b\\ \x9b31m\u202e"
        structlog.get_logger().info("attempt_failed", error_class=hostile, message=hostile)
    finally:
        structlog.reset_defaults()
    written = stream.getvalue()
    assert not any(raw in written for raw in ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\u202e"))  # it has colors
    assert "pwned" in written


@pytest.mark.parametrize("text", ["a" * 200_000 + "://", "nats://" * 30_000, "a+" * 100_000 + "://x:y@"])
def test_redaction_takes_time_in_proportion_to_the_text(text: str) -> None:
    """L9: 32,000 letters took 0.6 s of the event loop."""
    began = time.process_time()
    log.redact(None, "info", {"message": text})
    assert time.process_time() - began < 0.5


def test_redaction_still_hides_passwords_in_urls() -> None:
    told = log.redact(
        None, "info", {"m": "x postgresql://app:s3cret@db/x, (nats://tok3n@h) a.b+c://u:p4ss@h"}
    )
    assert not any(word in told["m"] for word in ("s3cret", "tok3n", "p4ss"))
    assert json.dumps(dict(told)).count("***") == 3
