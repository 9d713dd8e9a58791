"""What users' own tables refer to: a foreign key on a task keeps nobody from working on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from grns.maintenance.reaper import reap
from grns.maintenance.retention import TaskRetention
from grns.maintenance.scheduler import promote
from grns.model.outcome import Claim, Verb
from grns.postgres.database import Database
from grns.settings.groups import JanitorSettings
from grns.telemetry.service_signals import RowsDeleted, TickFailed
from grns.telemetry.signal import Signal
from grns.worker.claims import Claims
from grns.worker.renewals import HeldLease, renew
from tests.support.harness import submit_many
from tests.support.store import (
    LEASE_SECONDS,
    WORKER,
    cancel,
    claim,
    fetch,
    finish,
    locked,
    place,
    redrive,
    release,
    row_of,
    stranger,
)

Step = Callable[[Database, Claim], Awaitable[object]]


@asynccontextmanager
async def referred_to(database: Database, task_id: str) -> AsyncIterator[None]:
    """Let a transaction be open that has written a row which refers to a task."""
    await fetch(database, "create table effects (task_id text references grns.tasks)")
    async with stranger(database) as connection:
        await connection.execute("insert into effects values ($1)", task_id)
        yield


async def _claim_next(database: Database, _held: Claim) -> object:
    return await Claims(database, WORKER, batch_limit=1).claim_next(1, older_than_seconds=0.0)


async def _renew(database: Database, held: Claim) -> object:
    (verdict,) = await renew(database, [HeldLease(held.id, held.attempt, held.lease_id)], LEASE_SECONDS)
    assert verdict.verdict == "renewed"
    return verdict


# Each statement that changes a task: where the task is before, what is asked, and where it is then.
STEPS: dict[str, tuple[str, Step, str]] = {
    "claim": ("queued", lambda database, held: claim(database, held.id), "running"),
    "claim_next": ("queued", _claim_next, "running"),
    "renew": ("running", _renew, "running"),
    "finish": ("running", lambda database, held: finish(database, held, Verb.SUCCEED), "succeeded"),
    "release": ("running", lambda database, held: release(database, held), "queued"),
    "reap": ("running_late", lambda database, held: reap(database, 1, None), "queued"),
    "promote": ("retry_due", lambda database, held: promote(database, 1, None), "queued"),
    "cancel": ("queued", lambda database, held: cancel(database, held.id), "cancelled"),
    "redrive": ("dead", lambda database, held: redrive(database, held.id), "queued"),
}


@pytest.mark.parametrize("name", STEPS)
async def test_whoever_writes_a_reference_to_a_task_holds_up_nothing(database: Database, name: str) -> None:
    """The first statement of a `task.transaction()` may well be such a row; its lease must be renewed."""
    road, step, status = STEPS[name]
    held = await place(database, road)
    async with referred_to(database, held.id):
        await step(database, held)
        assert (await row_of(database, held.id))["status"] == status


# ---------------------------------------------------------------- what cannot be deleted

DAY = 86_400.0


async def ended_long_ago(database: Database, count: int) -> list[str]:
    """Return tasks that are past their retention, in the order of the walk."""
    ids = sorted(await submit_many(database, count))
    await cancel(database, *ids)
    await fetch(database, "update grns.tasks set finished_at = now() - interval '60 days'")
    return ids


async def walk(database: Database, page_rows: int = 1000) -> list[Signal]:
    """Walk over all tasks once, and return what was told of it."""
    told: list[Signal] = []
    settings = JanitorSettings(task_retention_days=1.0, dead_retention_days=1.0)
    retention = TaskRetention(database, settings, emit=told.append, page_rows=page_rows)
    while await retention.step():
        pass
    return told


async def left(database: Database) -> list[str]:
    """Return the tasks that there are."""
    return [row["id"] for row in await fetch(database, "select id from grns.tasks order by id")]


async def test_a_task_that_somebody_has_locked_stays_and_its_neighbours_go(database: Database) -> None:
    ids = await ended_long_ago(database, 5)
    async with locked(database, ids[2]), asyncio.timeout(1.5):  # it does not wait for the lock, not even once
        assert await walk(database) == [RowsDeleted("tasks", 4)]
    assert await left(database) == [ids[2]]
    assert await walk(database) == [RowsDeleted("tasks", 1)]


async def test_tasks_that_are_referred_to_stay_and_their_neighbours_go(database: Database) -> None:
    ids = await ended_long_ago(database, 50)
    kept = [ids[0], ids[17], ids[18], ids[49]]
    await fetch(database, "create table effects (task_id text references grns.tasks)")
    await fetch(database, "insert into effects select unnest($1::text[])", kept)
    told = await walk(database)
    assert await left(database) == kept
    assert sum(signal.rows for signal in told if isinstance(signal, RowsDeleted)) == 46
    first, last = [signal for signal in told if isinstance(signal, TickFailed)]
    assert kept[0] in first.error
    assert "effects" in first.error, "whoever reads it knows where to look"
    assert "4 tasks" in last.error


async def test_a_task_whose_cascade_meets_a_lock_stays_and_the_walk_goes_on(database: Database) -> None:
    """That lock is waited for, as long as the connection waits for any."""
    held, free = await ended_long_ago(database, 2)
    await fetch(database, "create table effects (task_id text references grns.tasks on delete cascade)")
    await fetch(database, "insert into effects values ($1), ($2)", held, free)
    async with stranger(database) as connection:
        await connection.execute("select from effects where task_id = $1 for update", held)
        refused, gone = await walk(database, page_rows=1)
    assert isinstance(refused, TickFailed)
    assert held in refused.error
    assert gone == RowsDeleted("tasks", 1)
    assert await left(database) == [held]
