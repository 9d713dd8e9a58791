"""Jitter delays tasks, always the same at each time, and neither times nor decisions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import asyncpg
import pytest

from grns.postgres.database import Database
from grns.schedules import service as store
from grns.schedules.ticks import Rhythm, jitter
from tests.schedules.test_scheduler import let_be_due, now, put, scheduler, tasks
from tests.support.followers import begin_here
from tests.support.store import fetch

_NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
_HOURLY = Rhythm("0 * * * *", None, "UTC", _NOON)


def test_jitter_of_a_time_is_always_the_same_and_spreads_evenly() -> None:
    times = list(islice(_HOURLY.after(_NOON), 500))
    found = [jitter("default/hourly", time, 600).total_seconds() for time in times]
    vienna = [jitter("default/hourly", time.astimezone(ZoneInfo("Europe/Vienna")), 600) for time in times]
    assert found == [one.total_seconds() for one in vienna]
    assert min(found) >= 0
    assert max(found) < 600
    for quarter in range(4):
        assert 90 < sum(quarter * 150 <= one < (quarter + 1) * 150 for one in found) < 160
    assert found != [jitter("default/other", time, 600).total_seconds() for time in times]
    assert jitter("default/hourly", _NOON, 600) == timedelta(seconds=537.408784), "it never changes"


async def test_jitter_delays_the_task_and_not_the_times(shared: Database) -> None:
    made = await put(shared, cron="* * * * *", jitter_seconds=3000, overlap="allow")
    await fetch(shared, "update grns.schedules set next_at = date_trunc('minute', now())")
    await scheduler(shared).tick()
    (run,) = (await store.list_runs(shared, "hourly", workspace="default", limit=10)).rows
    (task,) = await tasks(shared)
    delay = jitter("default/hourly", run.due_at, 3000)
    found = await store.read(shared, "hourly", workspace="default")
    assert (run.due_at.second, found.next_at - run.due_at) == (0, timedelta(minutes=1))
    assert made.run_at(run.due_at) == run.due_at + delay
    if run.due_at + delay > run.decided_at:
        assert (task["status"], task["next_attempt_at"]) == ("waiting", run.due_at + delay)
    else:
        assert task["status"] == "queued"


async def test_jitter_of_a_task_that_waits_for_the_one_before(shared: Database) -> None:
    await begin_here(shared)
    await put(shared, overlap="queue_one", jitter_seconds=3599)
    await now(shared)
    hour = await let_be_due(shared)
    await scheduler(shared).tick()
    first, second = await tasks(shared)
    assert (first["status"], first["next_attempt_at"]) == ("queued", None), "a run that is asked for starts"
    (wait,) = await fetch(shared, "select run_at from grns.waits")
    assert (second["status"], wait["run_at"]) == ("waiting", hour + jitter("default/hourly", hour, 3599))


async def test_jitter_in_sql_has_the_same_limits(shared: Database) -> None:
    await fetch(shared, "select grns.put_schedule('a', 'noop', cron => '0 * * * *', jitter_seconds => 3599)")
    assert (await store.read(shared, "a", workspace="default")).jitter_seconds == 3599
    for said in (
        "cron => '0 * * * *', jitter_seconds => 3600",
        "every_seconds => 60, jitter_seconds => 60",
        "every_seconds => 60, jitter_seconds => 'NaN'",
    ):
        with pytest.raises(asyncpg.CheckViolationError, match="schedules_jitter"):
            await fetch(shared, f"select grns.put_schedule('a', 'noop', {said})")
