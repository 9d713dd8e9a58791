"""A backfill submits the tasks of times that had none, each once, and leaves all others alone."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from grns.errors import InvalidInputError, NotFoundError
from grns.model.json import DEFAULT_LIMITS
from grns.postgres.database import Database
from grns.schedules import service as store
from grns.schedules.backfill import backfill
from grns.schedules.model import Backfill
from tests.schedules.test_scheduler import let_be_due, put, runs, scheduler, tasks, unreachable
from tests.support.followers import begin_here, follow
from tests.support.store import claim, fetch, finish

_HOUR = timedelta(hours=1)


async def fill(
    database: Database, start: datetime, end: datetime, *, name: str = "hourly", is_trial: bool = False
) -> tuple[int, int, int]:
    """Backfill, and return how many times there were, were submitted and were left alone."""
    made = await backfill(
        database, unreachable(database), name, start, end, workspace="default", actor="ann",
        limits=DEFAULT_LIMITS, is_trial=is_trial,
    )  # fmt: skip
    assert isinstance(made, Backfill)
    return made.times, made.submitted, made.left_alone


async def this_hour(database: Database) -> datetime:
    """Return the last full hour."""
    (row,) = await fetch(database, "select date_trunc('hour', now()) as hour")
    hour: datetime = row["hour"]
    return hour


async def test_times_before_the_schedule_was_created_are_submitted_once(shared: Database) -> None:
    made = await put(shared, overlap="allow", payload={"days": 1})
    hour = await this_hour(shared)
    span = hour - 3 * _HOUR, hour
    assert await fill(shared, *span, is_trial=True) == (3, 3, 0)
    assert await tasks(shared) == []
    assert await fill(shared, *span) == (3, 3, 0)
    assert await fill(shared, *span) == (3, 0, 3)
    assert await fill(shared, span[0] - _HOUR, hour + timedelta(minutes=1)) == (5, 2, 3)
    found = await tasks(shared)
    keys = [f"schedule/hourly/{hour - n * _HOUR:%Y-%m-%dT%H:%M:%S.%fZ}" for n in range(5)]
    assert sorted(task["idempotency_key"] for task in found) == sorted(keys)
    assert {(task["status"], task["payload"]) for task in found} == {("queued", '{"days": 1}')}
    page = (await store.list_runs(shared, "hourly", workspace="default", limit=10)).rows
    assert {(run.outcome, run.source) for run in page} == {("submitted", "backfill")}
    after = await store.read(shared, "hourly", workspace="default")
    assert (after.next_at, after.last_due_at) == (made.next_at, hour)
    events = await fetch(shared, "select payload from grns.events where kind = 'evt.schedule.submitted'")
    assert {json.loads(event["payload"])["actor"] for event in events} == {"ann"}


async def test_missed_and_skipped_times_are_run_and_submitted_ones_are_not(shared: Database) -> None:
    await put(shared)
    hour = await let_be_due(shared, hours=3)
    await scheduler(shared).tick()
    assert await runs(shared) == [("submitted", None), ("missed", "late")]
    (last,) = await tasks(shared)
    await finish(shared, await claim(shared, last["id"]))
    assert await fill(shared, hour - 4 * _HOUR, hour + timedelta(seconds=1)) == (5, 4, 1)
    page = (await store.list_runs(shared, "hourly", workspace="default", limit=10)).rows
    assert [(run.due_at, run.outcome, run.source) for run in page[:3]] == [
        (hour, "submitted", "tick"),
        (hour - _HOUR, "missed", "tick"),
        (hour - _HOUR, "submitted", "backfill"),
    ], "what was decided stays"


async def test_decisions_of_one_time_have_pages(shared: Database) -> None:
    await put(shared, overlap="allow")
    hour = await let_be_due(shared, hours=2)
    await scheduler(shared).tick()
    await fill(shared, hour - 3 * _HOUR, hour)
    seen, after = [], None
    while True:
        page = await store.list_runs(shared, "hourly", workspace="default", limit=1, after=after)
        seen += [(run.due_at, run.source) for run in page.rows]
        after = page.next_cursor
        if after is None:
            break
    assert seen == [
        (hour, "tick"), (hour - _HOUR, "tick"), (hour - _HOUR, "backfill"), (hour - 2 * _HOUR, "backfill"),
        (hour - 3 * _HOUR, "backfill"),
    ]  # fmt: skip


@pytest.mark.parametrize("overlap", ["skip", "queue_one"])
async def test_tasks_that_may_not_overlap_run_one_after_the_other(shared: Database, overlap: str) -> None:
    await begin_here(shared)
    await put(shared, overlap=overlap)
    hour = await let_be_due(shared)
    await scheduler(shared).tick()
    assert await fill(shared, hour - 2 * _HOUR, hour) == (2, 2, 0)
    order = [f"{hour:%H}", f"{hour - 2 * _HOUR:%H}", f"{hour - _HOUR:%H}"]
    for ended in range(3):
        await follow(shared)
        found = {task["idempotency_key"][-16:-14]: task for task in await tasks(shared)}
        status = [found[key]["status"] for key in order]
        assert status == ["succeeded"] * ended + ["queued"] + ["waiting"] * (2 - ended)
        await finish(shared, await claim(shared, found[order[ended]]["id"]))


async def test_due_time_is_skipped_while_a_backfill_runs(shared: Database) -> None:
    await put(shared)
    hour = await this_hour(shared)
    await fill(shared, hour - _HOUR, hour)
    await let_be_due(shared)
    await scheduler(shared).tick()
    assert await runs(shared) == [("skipped", "overlap"), ("submitted", None)]


async def test_times_that_are_to_be_decided_are_left_to_the_scheduler(shared: Database) -> None:
    await put(shared, overlap="allow", catch_up="all")
    hour = await let_be_due(shared, hours=1)
    assert await fill(shared, hour - 2 * _HOUR, hour + timedelta(seconds=1)) == (1, 1, 0)
    await asyncio.gather(
        scheduler(shared).tick(), fill(shared, hour - 2 * _HOUR, hour + timedelta(seconds=1))
    )
    await scheduler(shared).tick()  # what the backfill had locked, the scheduler before has left
    assert len(await tasks(shared)) == 3
    assert len(await runs(shared)) == 3


async def test_times_of_a_pause_can_be_run_while_it_lasts_and_afterwards(shared: Database) -> None:
    await put(shared, overlap="allow")
    hour = await let_be_due(shared, hours=2)
    await store.pause(shared, "hourly", workspace="default", actor="ann")
    assert await fill(shared, hour - 2 * _HOUR, hour) == (2, 2, 0)
    await store.resume(shared, "hourly", workspace="default", actor="ann")
    assert await fill(shared, hour - 2 * _HOUR, hour + timedelta(seconds=1)) == (3, 1, 2)


async def test_time_whose_key_another_task_has_is_left_alone(shared: Database) -> None:
    await put(shared, overlap="allow")
    hour = await this_hour(shared)
    key = f"schedule/hourly/{(hour - _HOUR).astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    await fetch(shared, "select grns.submit_task('other', idempotency_key => $1)", key)
    assert await fill(shared, hour - 2 * _HOUR, hour) == (2, 1, 1)
    assert await runs(shared) == [("submitted", None)]


async def test_interval_has_no_times_before_it_was_created(shared: Database) -> None:
    made = await put(shared, cron=None, every_seconds=1, overlap="allow")
    await fetch(
        shared, "update grns.schedules set anchor_at = anchor_at - interval '3 s', next_at = anchor_at"
    )
    assert await fill(shared, made.anchor_at - _HOUR, datetime.now(UTC)) == (2, 2, 0)


async def test_range_that_cannot_be_is_refused(shared: Database) -> None:
    await put(shared, cron="* * * * *", overlap="allow")
    hour = await this_hour(shared)
    for start, end, words in (
        (hour, hour, "end"),
        (hour, hour + 3 * _HOUR, "future"),
        (hour - timedelta(days=4000), hour, "ten years"),
        (hour.replace(tzinfo=None) - _HOUR, hour, "start: .* has no zone"),
        (hour - timedelta(days=1), hour, "more than 1,000 times: pass at most"),
    ):
        with pytest.raises(InvalidInputError, match=words) as raised:
            await fill(shared, start, end)
        assert raised.value.code == "bad_backfill"
    with pytest.raises(NotFoundError):
        await fill(shared, hour - _HOUR, hour, name="nothing")
    assert await tasks(shared) == []


@pytest.mark.parametrize("overlap", ["skip", "allow"])
async def test_thousand_times_are_submitted_by_one_call(shared: Database, overlap: str) -> None:
    await put(shared, cron="* * * * *", overlap=overlap)
    hour = await this_hour(shared)
    assert await fill(shared, hour - timedelta(minutes=1000), hour) == (1000, 1000, 0)
    assert len(await tasks(shared)) == 1000
