"""The log, counted: each row once, whoever counts, whoever dies, and however late a row becomes visible."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import pytest

from grns.errors import InvalidInputError, UnavailableError
from grns.maintenance.reaper import reap
from grns.maintenance.retention import delete_tasks
from grns.model.outcome import Verb
from grns.outbox.consumer import LogCursor
from grns.postgres.database import Database
from grns.runtime.leader import LeaderLease
from grns.stats import counts as count
from grns.stats.counts import StepCounts
from tests.support.aggregators import begin_here, count_all, counted, lead, there
from tests.support.harness import eventually, submit, submit_many
from tests.support.store import (
    ROADS,
    cancel,
    claim,
    fall_due,
    fetch,
    finish,
    is_waiting_for_lock,
    lapse,
    place,
    redrive,
    release,
    stranger,
)

DAY = 86_400.0


@pytest.fixture(autouse=True)
async def begun(shared: Database) -> None:
    """Let what is counted here begin here."""
    await begin_here(shared)


async def low(database: Database) -> int:
    """Return up to which number everything is counted."""
    return int((await fetch(database, "select low from grns.count_cursor"))[0]["low"])


async def last_number(database: Database) -> int:
    """Return the last number of the log that was given out."""
    return int((await fetch(database, "select last_value as n from grns.events_seq"))[0]["n"])


# ---------------------------------------------------------------- what is counted


async def test_the_counts_are_those_of_the_tasks(shared: Database) -> None:
    for road in ROADS:
        await place(shared, road)
    await submit_many(shared, 3, task_type="other", workspace="acme")
    await count_all(shared)
    assert await counted(shared) == await there(shared)
    assert await low(shared) == await last_number(shared)


@pytest.mark.parametrize("road", ROADS)
async def test_they_are_right_after_each_step(shared: Database, road: str) -> None:
    """Also where rows are read one by one."""
    await place(shared, road)
    await count_all(shared, 1)
    assert await counted(shared) == await there(shared)
    for step in (cancel, redrive, cancel):
        task_id = (await fetch(shared, "select id from grns.tasks"))[0]["id"]
        await step(shared, task_id)
        await count_all(shared, 1)
        assert await counted(shared) == await there(shared)


async def test_the_states_of_a_workspace_are_known_without_reading_tasks(shared: Database) -> None:
    await submit_many(shared, 4)
    await submit_many(shared, 2, task_type="other", delay_seconds=60.0)
    await submit_many(shared, 5, workspace="acme")
    await place(shared, "succeeded")
    await count_all(shared)
    states = await count.count_states(shared, workspace="default")
    assert states == {
        "waiting": 2, "queued": 4, "running": 0, "retry_wait": 0, "succeeded": 1, "failed": 0, "dead": 0,
        "cancelled": 0,
    }  # fmt: skip
    assert set((await count.count_states(shared, workspace="nobody")).values()) == {0}


@pytest.mark.parametrize("is_counted_before", [True, False])
async def test_what_retention_deletes_is_counted_no_more(shared: Database, is_counted_before: bool) -> None:
    """Also where nobody has counted it while it was there: its first event tells its type."""
    gone = [(await place(shared, road)).id for road in ("succeeded", "dead", "failed", "cancelled")]
    await place(shared, "queued")
    if is_counted_before:
        await count_all(shared)
    await fetch(
        shared, "update grns.tasks set finished_at = now() - interval '9 days' where id = any($1)", gone
    )
    assert (await delete_tasks(shared, "", 100, DAY, DAY)).deleted == len(gone)
    await submit(shared)
    await count_all(shared)
    assert await counted(shared) == await there(shared) == {("default", "noop", "queued"): 2}
    assert not await fetch(shared, "select from grns.deleted_tasks")
    assert not await fetch(shared, "select from grns.issues where open_count <> 0")


async def test_other_rows_of_the_log_are_passed_over(shared: Database) -> None:
    await fetch(
        shared,
        "insert into grns.events (version, workspace, kind, trace_id, payload)"
        " select 0, 'default', k, 'trace', '{}' from unnest($1::text[]) as k",
        ["evt.agent.a.b", "dlq.message.rejected", "evt.pool.paused", "cmd.agent.a.b"],
    )
    await count_all(shared)
    assert await counted(shared) == {}
    assert await low(shared) == await last_number(shared)


# ---------------------------------------------------------------- minutes


async def minutes(database: Database, **wanted: object) -> list[StepCounts]:
    """Return what happened in the last hours and the next one, all at once where no step is asked for."""
    now = datetime.now(UTC)
    bounds = {"since": now - timedelta(hours=3), "until": now + timedelta(hours=1), "step_seconds": 10**9}
    return await count.read_minutes(database, **{"workspace": "default", **bounds, **wanted})  # type: ignore[arg-type]


async def test_what_happens_is_counted_by_the_minute(shared: Database) -> None:
    await place(shared, "succeeded")
    await place(shared, "failed")
    await place(shared, "cancelled")
    dead = (await place(shared, "dead")).id
    await redrive(shared, dead)
    retried = (await place(shared, "retry_due")).id
    held = await claim(shared, retried)
    await release(shared, held)
    await lapse(shared, (await claim(shared, retried)).id)
    await reap(shared, 10, None)
    await count_all(shared)
    (row,) = await minutes(shared)
    said = {
        name: value for name, value in asdict(row).items() if name not in ("at", "queue_ms_sum", "run_ms_sum")
    }
    assert said == {
        "submitted": 5, "claimed": 6, "succeeded": 1, "failed": 1, "dead": 1, "cancelled": 1, "retried": 1,
        "expired": 1, "released": 1, "redriven": 1, "queue_count": 5, "run_count": 3,
    }  # fmt: skip
    assert await minutes(shared, workspace="acme") == []
    assert await minutes(shared, task_type="other") == []


async def test_it_is_known_how_long_they_waited_and_ran(shared: Database) -> None:
    """The wait is told by the claim; a run is one that the attempt itself has ended."""
    task_id = (await submit(shared)).id
    await fetch(shared, "update grns.tasks set queued_at = now() - interval '70 s' where id = $1", task_id)
    held = await claim(shared, task_id)
    await fetch(shared, "update grns.tasks set started_at = now() - interval '9 s' where id = $1", task_id)
    await finish(shared, held, Verb.RETRY)
    await fall_due(shared, task_id)
    await claim(shared, task_id)  # from retry_wait: it had not been queued
    await lapse(shared, task_id)
    await reap(shared, 10, None)
    await count_all(shared)
    (row,) = await minutes(shared)
    assert row.queue_count == 1
    assert 70_000 <= row.queue_ms_sum < 80_000
    # That it ran for 9 s nobody knows any more: when it was counted the next attempt had begun.
    assert (row.run_count, row.run_ms_sum) == (0, 0)
    held = await claim(shared, task_id)
    await fetch(shared, "update grns.tasks set started_at = now() - interval '5 s' where id = $1", task_id)
    await finish(shared, held)
    await count_all(shared)
    (row,) = await minutes(shared)
    assert row.run_count == 1
    assert 5_000 <= row.run_ms_sum < 15_000


async def test_a_chart_has_as_many_steps_as_are_asked_for(shared: Database) -> None:
    await submit_many(shared, 6)
    await fetch(
        shared,
        "with late as (select seq, row_number() over (order by seq) as n from grns.events"
        " where kind = 'evt.task.queued')"
        " update grns.events e set created_at = date_trunc('hour', now()) - l.n * interval '5 minutes'"
        " from late l where l.seq = e.seq",
    )
    await count_all(shared)
    assert [row.submitted for row in await minutes(shared, step_seconds=60)] == [1] * 6
    assert [row.submitted for row in await minutes(shared, step_seconds=600)] == [2, 2, 2]
    times = [row.at for row in await minutes(shared, step_seconds=600)]
    assert times == sorted(times)
    for wrong in ({"step_seconds": 59}, {"step_seconds": 60, "since": datetime(2020, 1, 1, tzinfo=UTC)}):
        with pytest.raises(InvalidInputError, match="step"):
            await minutes(shared, **wrong)


# ---------------------------------------------------------------- rows that become visible late


async def test_what_commits_late_is_counted_when_it_is_visible(shared: Database) -> None:
    async with stranger(shared) as connection:
        await connection.fetch("select grns.submit_task('late') from generate_series(1, 3)")
        await submit_many(shared, 2)
        leading = await count_all(shared)
        assert await counted(shared) == {("default", "noop", "queued"): 2}
        before = await low(shared)
        await connection.execute("commit")
        while await leading.step(2):
            pass
    assert await counted(shared) == await there(shared)
    assert await low(shared) == await last_number(shared) > before


async def test_the_next_counter_looks_for_what_was_missing(shared: Database) -> None:
    async with stranger(shared) as connection:
        await connection.fetch("select grns.submit_task('late')")
        await submit_many(shared, 2)
        await count_all(shared)
        await connection.execute("commit")
    await count_all(shared)
    assert await counted(shared) == await there(shared)


async def test_a_strangers_open_transaction_holds_nothing_up(shared: Database) -> None:
    async with stranger(shared) as connection:
        await connection.fetch("select grns.submit_task('hidden')")
        leading = await lead(shared)
        for number in range(1, 4):
            await submit(shared)
            await leading.step(100)
            assert await counted(shared) == {("default", "noop", "queued"): number}


async def test_numbers_that_were_rolled_back_are_given_up(shared: Database) -> None:
    async with stranger(shared) as connection:
        await connection.fetch("select grns.submit_task('undone')")
        await submit(shared)
        leading = await count_all(shared)
    hidden = await low(shared)

    async def is_counted() -> bool:
        await submit(shared)
        await leading.step(100)
        return await low(shared) == await last_number(shared)

    await eventually(is_counted)
    assert await low(shared) > hidden
    assert await counted(shared) == await there(shared)


async def test_more_than_fits_into_one_reading_is_counted_in_parts(shared: Database) -> None:
    async with stranger(shared) as connection:
        await connection.fetch("select grns.submit_task('late') from generate_series(1, 7)")
        await submit_many(shared, 20)
        leading = await count_all(shared, 3)
        await submit_many(shared, 20)
        await connection.execute("commit")
        while await leading.step(3):
            pass
    assert await counted(shared) == await there(shared)


# ---------------------------------------------------------------- who counts


async def test_one_counter_leads_until_its_lease_is_over(shared: Database) -> None:
    first, again, other = (LeaderLease("stats", owner, 60.0) for owner in ("one", "one", "two"))
    assert await first.acquire(shared)
    assert not await other.acquire(shared)
    assert await again.acquire(shared)
    assert again.epoch == first.epoch + 1
    await first.release(shared)
    assert not await other.acquire(shared), "what is not its own it cannot give away"
    await again.release(shared)
    assert await other.acquire(shared)


async def test_the_cursor_comes_back_as_it_was_left(shared: Database) -> None:
    async with stranger(shared) as connection:
        await connection.fetch("select grns.submit_task('hidden')")
        await submit_many(shared, 2)
        await count_all(shared)
    start = await low(shared)
    cursor = await count.read_cursor(shared)
    # One number of the stranger's; the two events beyond are counted.
    assert (cursor.low, cursor.beyond) == (start, [(start + 2, start + 4)])


async def test_one_that_has_lost_the_lead_counts_nothing(shared: Database) -> None:
    """However far it had got: it was frozen, and the other one has counted all of it."""
    await submit_many(shared, 5)
    frozen = await lead(shared, "one")
    await count_all(shared)
    with pytest.raises(UnavailableError, match="another one leads"):
        await frozen.step(100)
    assert await counted(shared) == await there(shared)


async def test_a_statement_that_waits_while_the_lead_changes_counts_nothing(shared: Database) -> None:
    await submit_many(shared, 5)
    late = await lead(shared, "one")
    async with stranger(shared) as connection:
        await connection.execute("update grns.leases set epoch = epoch + 1, owner = 'two'")
        counting = asyncio.create_task(late.step(100))
        await eventually(lambda: is_waiting_for_lock(shared))
        await connection.execute("commit")
        with pytest.raises(UnavailableError, match="another one leads"):
            await counting
    assert await counted(shared) == {}
    await count_all(shared)
    assert await counted(shared) == await there(shared)


async def test_many_counters_at_once_count_each_row_once(shared: Database) -> None:
    """They take the lead from each other in the midst of it, again and again."""
    for road in ("succeeded", "dead", "cancelled", "running"):
        await place(shared, road)

    async def count_on(owner: str) -> None:
        for _ in range(6):
            leading = await lead(shared, owner)
            await submit(shared, task_type=owner)
            try:
                while await leading.step(3):
                    pass
            except UnavailableError:
                continue

    await asyncio.gather(*(count_on(f"counter-{number}") for number in range(4)))
    await count_all(shared)
    assert await counted(shared) == await there(shared)
    assert await low(shared) == await last_number(shared)


async def test_one_that_died_after_it_had_counted_is_followed_by_one_that_goes_on_there(
    shared: Database,
) -> None:
    """Nobody has heard that the statement had committed."""
    await submit_many(shared, 5)
    unheard = await lead(shared)
    await unheard.step(4)
    await count_all(shared)
    assert await counted(shared) == await there(shared)


async def test_a_row_that_is_not_there_stops_all_of_it(shared: Database) -> None:
    """A failover may have lost rows that were read before it; their numbers come again."""
    await submit_many(shared, 2)
    lease = LeaderLease("stats", "test", 60.0)
    assert await lease.acquire(shared)
    cursor = await count.read_cursor(shared)
    after = await last_number(shared)
    spans = [(cursor.low + 1, after + 2)]
    assert await count.count(shared, lease, cursor, spans, LogCursor(0, after + 1, [])) is None
    assert await counted(shared) == {}
    assert await low(shared) == cursor.low
    spans = [(cursor.low + 1, after + 1)]
    assert await count.count(shared, lease, cursor, spans, LogCursor(0, after, [])) is not None
    assert await count.count(shared, lease, cursor, [], LogCursor(0, 0, [])) is None, "the cursor has moved"
    assert await counted(shared) == await there(shared)
