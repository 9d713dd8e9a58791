"""Times that a statement writes inside a transaction that began earlier: those of the statement."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from grns.model.outcome import Verb
from grns.postgres.database import Connection, Database, run
from grns.tasks.submit import Submitted, submit_in
from grns.worker.finishes import finish_in
from tests.support.harness import submit
from tests.support.store import ACTOR, claim, ending, fetch, log_of, row_of
from tests.tasks.test_submit import made

_OPEN_SECONDS = 0.05


@asynccontextmanager
async def opened(database: Database) -> AsyncIterator[tuple[Connection, datetime]]:
    """Open a transaction, let time pass inside it, and give the time by then."""
    async with database.transaction() as connection:
        await connection.execute(f"select pg_sleep({_OPEN_SECONDS})")
        yield connection, await connection.fetchval("select clock_timestamp()")


async def written_since(database: Database, task_id: str, before: dict[str, Any]) -> dict[str, datetime]:
    """Return the times of a task that differ from those it had."""
    return {
        name: value
        for name, value in (await row_of(database, task_id)).items()
        if isinstance(value, datetime) and value != before.get(name)
    }


async def check_log(database: Database, task_id: str, at: datetime, *, events: int) -> None:
    """Check that a task's events are in order of time, and the last few not earlier than that."""
    times = [entry["created_at"] for entry in await log_of(database, task_id)]
    assert times == sorted(times)
    assert all(time >= at for time in times[-events:])


async def test_finish_in_an_open_transaction_writes_the_time_of_the_finish(shared: Database) -> None:
    """Newcomer 1: finished_at and duration_ms had the start of the handler's transaction as the end."""
    async with shared.transaction() as connection:
        await connection.execute("select")
        owner = await claim(shared, (await submit(shared)).id)  # the transaction is older than the task
        before = await row_of(shared, owner.id)
        await connection.execute(f"select pg_sleep({_OPEN_SECONDS})")
        at = await connection.fetchval("select clock_timestamp()")
        finished = await finish_in(connection, ending(owner))
    written = await written_since(shared, owner.id, before)
    assert set(written) == {"finished_at", "updated_at"}
    assert len(set(written.values())) == 1
    assert written["finished_at"] >= at
    assert finished.total_seconds is not None
    assert finished.total_seconds >= _OPEN_SECONDS
    completed = json.loads((await log_of(shared, owner.id))[-1]["payload"])
    assert completed["duration_ms"] >= 1000 * _OPEN_SECONDS
    await check_log(shared, owner.id, at, events=1)


async def test_retry_in_an_open_transaction_counts_its_backoff_from_the_finish(shared: Database) -> None:
    """Newcomer 1: a backoff counted from the transaction's start could be over before it was written."""
    owner = await claim(shared, (await submit(shared)).id)
    wanted = ending(owner, Verb.RETRY)
    before = await row_of(shared, owner.id)
    async with opened(shared) as (connection, at):
        await finish_in(connection, wanted)
    written = await written_since(shared, owner.id, before)
    assert set(written) == {"next_attempt_at", "updated_at"}
    backoff = timedelta(seconds=wanted.outcome.backoff_seconds)
    assert written["next_attempt_at"] - backoff == written["updated_at"] >= at
    event = json.loads((await log_of(shared, owner.id))[-1]["payload"])
    assert datetime.fromisoformat(event["next_attempt_at"]) == written["next_attempt_at"]
    await check_log(shared, owner.id, at, events=1)


@pytest.mark.parametrize("delay_seconds", [0.0, 60.0])
async def test_submit_in_an_open_transaction_writes_the_time_of_the_submission(
    shared: Database, delay_seconds: float
) -> None:
    """Newcomer 1: created_at, queued_at and the end of a delay had the start of the caller's transaction."""
    async with opened(shared) as (connection, at):
        first, second = await submit_in(connection, [made(delay_seconds=delay_seconds) for _ in range(2)])
    assert isinstance(first, Submitted)
    assert isinstance(second, Submitted)
    row = await row_of(shared, first.id)
    assert row["created_at"] == row["updated_at"] >= at
    assert row["created_at"] == (await row_of(shared, second.id))["created_at"], "one call, one time"
    due = row["next_attempt_at"] if delay_seconds else row["queued_at"]
    assert due == row["created_at"] + timedelta(seconds=delay_seconds)
    await check_log(shared, first.id, at, events=1 if delay_seconds else 2)


async def test_submit_task_inside_a_function_writes_the_time_of_its_own_call(shared: Database) -> None:
    """Newcomer 1: a caller's function is one statement, however long it runs."""
    (row,) = await fetch(
        shared,
        f"""
        with before as materialized (
            select statement_timestamp() as at, pg_sleep({_OPEN_SECONDS}) is not null as has_slept
        ),
        made as materialized (
            select b.at, grns.submit_task('noop', delay_seconds => 9) as id from before b where b.has_slept
        )
        select m.at, m.id from made m
        """,
    )
    task = await row_of(shared, row["id"])
    assert task["created_at"] >= row["at"] + timedelta(seconds=_OPEN_SECONDS)
    assert task["next_attempt_at"] - task["created_at"] == timedelta(seconds=9)


@pytest.mark.parametrize("is_running", [True, False])
async def test_cancel_in_an_open_transaction_writes_the_time_of_the_cancel(
    shared: Database, is_running: bool
) -> None:
    """Newcomer 1: requests over NATS cancel in a transaction that may have waited for another one's marks."""
    task_id = (await submit(shared)).id
    if is_running:
        await claim(shared, task_id)
    before = await row_of(shared, task_id)
    async with opened(shared) as (connection, at):
        await run(connection, "cancel", [task_id], "not needed", "default", ACTOR)
    written = await written_since(shared, task_id, before)
    ends = {"cancel_requested_at", "updated_at"} | (set() if is_running else {"finished_at"})
    assert set(written) == ends
    assert all(time >= at for time in written.values())


async def test_mark_in_an_open_transaction_is_remembered_from_its_own_time(shared: Database) -> None:
    """Newcomer 1: the age of a mark was counted from the start of the handler's transaction."""
    async with opened(shared) as (connection, at):
        await run(connection, "mark_processed", "billing", uuid4())
    (row,) = await fetch(shared, "select processed_at from grns.processed_messages")
    assert row["processed_at"] >= at


async def test_close_of_a_message_in_an_open_transaction_writes_its_own_time(shared: Database) -> None:
    """Newcomer 1: a message is sent again to the broker inside the transaction that closes it."""
    (row,) = await fetch(
        shared,
        "insert into grns.dead_letters (reason, detail, subject, stream, stream_seq, delivery_count, headers,"
        " body, body_sha256) values ('bad_json', '', 'cmd.task.execute.v1', 'GRNS_CMD', 1, 1, '{}', '', '')"
        " returning id",
    )
    async with opened(shared) as (connection, at):
        await run(connection, "close_dead_letters", [row["id"]], "default", "redriven", ACTOR, None, False)
    (closed,) = await fetch(
        shared, "select state, updated_at from grns.dead_letters where id = $1", row["id"]
    )
    assert closed["state"] == "redriven"
    assert closed["updated_at"] >= at
