"""What users' own tables refer to: a foreign key on a task keeps nobody from working on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from grns.outcome import Claim, Verb
from grns.store.claim import Claims
from grns.store.database import Database
from grns.store.renew import Held, renew
from grns.store.sweep import promote, reap
from tests.test_store_kit import (
    LEASE_SECONDS,
    WORKER,
    cancel,
    claim,
    fetch,
    finish,
    place,
    redrive,
    release,
    row_of,
    stranger,
)

pytest_plugins = ["tests.test_store_kit"]

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
    (verdict,) = await renew(database, [Held(held.id, held.attempt, held.lease_id)], LEASE_SECONDS)
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
