"""A schedule is paused once so many of its tasks in a row have failed, as far as they have ended."""

from __future__ import annotations

import json
from datetime import UTC
from typing import Any

import asyncpg
import pytest

from grns.model.json import DEFAULT_LIMITS
from grns.model.outcome import Verb
from grns.postgres.database import Database
from grns.schedules import service as store
from grns.schedules.scheduler import Scheduler, run_now
from grns.tasks.cancel import cancel
from grns.telemetry.service_signals import SchedulePaused
from tests.schedules.test_scheduler import let_be_due, put, runs, scheduler, tasks, unreachable
from tests.support.store import claim, fetch, finish

_WHO = {"workspace": "default", "actor": "tests"}


async def end(database: Database, verb: Verb) -> str:
    """End the last task, and return its id."""
    found = await store.read(database, "hourly", workspace="default")
    assert found.last_task_id is not None
    await finish(database, await claim(database, found.last_task_id), verb)
    return found.last_task_id


async def tick(database: Database) -> None:
    """Let the last full hour be due as if it never had been, and decide."""
    await fetch(database, "delete from grns.schedule_runs")
    await fetch(database, "update grns.tasks set idempotency_key = null")
    await let_be_due(database)
    await scheduler(database).tick()


async def failures(database: Database) -> int:
    """Return how many failures are counted."""
    return (await store.read(database, "hourly", workspace="default")).failures


async def test_failures_in_a_row_pause_the_schedule_at_the_next_time(shared: Database) -> None:
    await put(shared, pause_after_failures=2, max_attempts=1)
    await tick(shared)
    await end(shared, Verb.FAIL)
    await tick(shared)
    assert await failures(shared) == 1
    last = await end(shared, Verb.RETRY)
    await fetch(shared, "delete from grns.schedule_runs")
    await let_be_due(shared)
    told: list[Any] = []
    await Scheduler(
        database=shared, transport=unreachable(shared), limits=DEFAULT_LIMITS, emit=told.append
    ).tick()
    found = await store.read(shared, "hourly", workspace="default")
    reason = f"2 failures in a row: the last task, {last}, ended dead"
    assert (found.paused_by, found.pause_reason, found.failures) == ("grns", reason, 2)
    assert (len(await tasks(shared)), await runs(shared)) == (2, [])
    assert told == [SchedulePaused("default", "hourly", reason)]
    (event,) = await fetch(shared, "select payload from grns.events where kind = 'evt.schedule.paused'")
    said = json.loads(event["payload"])
    assert (said["schedule"], said["reason"], said.get("actor")) == ("hourly", reason, None)


async def test_resumed_schedule_counts_failures_from_zero(shared: Database) -> None:
    await put(shared, pause_after_failures=1)
    await tick(shared)
    await end(shared, Verb.FAIL)
    await tick(shared)
    assert await failures(shared) == 1
    assert (await store.resume(shared, "hourly", **_WHO)).failures == 0
    await tick(shared)
    assert len(await tasks(shared)) == 2, "the failure before the pause is not counted again"
    await end(shared, Verb.FAIL)
    await tick(shared)
    assert (await store.read(shared, "hourly", workspace="default")).paused_at is not None


async def test_success_between_failures_begins_the_count_anew(shared: Database) -> None:
    await put(shared, pause_after_failures=2)
    for verb, counted in ((Verb.FAIL, 1), (Verb.SUCCEED, 0), (Verb.FAIL, 1), (Verb.CANCEL, 1)):
        await tick(shared)
        if verb is Verb.CANCEL:
            last = (await store.read(shared, "hourly", workspace="default")).last_task_id
            await cancel(shared, unreachable(shared), [last or ""], reason=None, **_WHO)
        else:
            await end(shared, verb)
        await tick_without_a_task(shared)
        assert await failures(shared) == counted
    assert (await store.read(shared, "hourly", workspace="default")).paused_at is None


async def test_cancelled_task_pauses_nothing_once_the_limit_is_lower(shared: Database) -> None:
    await put(shared, pause_after_failures=3)
    for _ in range(2):
        await tick(shared)
        await end(shared, Verb.FAIL)
    await tick(shared)
    await put(shared, pause_after_failures=1)
    last = (await store.read(shared, "hourly", workspace="default")).last_task_id
    await cancel(shared, unreachable(shared), [last or ""], reason=None, **_WHO)
    await tick(shared)
    found = await store.read(shared, "hourly", workspace="default")
    assert (found.failures, found.paused_at) == (2, None)
    await end(shared, Verb.FAIL)
    await tick(shared)
    found = await store.read(shared, "hourly", workspace="default")
    assert (found.failures, found.paused_by) == (3, "grns")


async def tick_without_a_task(database: Database) -> None:
    """Let an hour be due twice whose key another task has: the last task stays so, and is counted once."""
    for _ in range(2):
        await fetch(database, "delete from grns.schedule_runs")
        await fetch(database, "update grns.tasks set idempotency_key = null")
        hour = await let_be_due(database)
        key = f"schedule/hourly/{hour.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        await fetch(database, "select grns.submit_task('other', idempotency_key => $1)", key)
        await scheduler(database).tick()
        assert await runs(database) == [("skipped", "key_taken")]


async def test_task_that_has_not_ended_counts_as_neither(shared: Database) -> None:
    await put(shared, pause_after_failures=1, overlap="allow")
    await tick(shared)
    (first,) = await tasks(shared)
    await tick(shared)
    await finish(shared, await claim(shared, first["id"]), Verb.FAIL)
    await tick(shared)
    assert (await failures(shared), len(await tasks(shared))) == (0, 3)


async def test_run_now_counts_the_task_before_and_pauses_nothing(shared: Database) -> None:
    await put(shared, pause_after_failures=1)
    await tick(shared)
    await end(shared, Verb.FAIL)
    made = await run_now(
        shared, unreachable(shared), "hourly", limits=DEFAULT_LIMITS, workspace="default", actor="ann"
    )
    found = await store.read(shared, "hourly", workspace="default")
    assert (made.outcome, found.failures, found.paused_at) == ("submitted", 1, None)
    await end(shared, Verb.SUCCEED)
    await tick(shared)
    assert (await failures(shared), len(await tasks(shared))) == (0, 3)


async def test_number_of_failures_has_limits(shared: Database) -> None:
    said = "select grns.put_schedule('a', 'noop', every_seconds => 60, pause_after_failures => $1)"
    await fetch(shared, said, 3)
    assert (await store.read(shared, "a", workspace="default")).pause_after_failures == 3
    with pytest.raises(asyncpg.CheckViolationError, match="pause_after_failures"):
        await fetch(shared, said, 0)
