"""The meter: what it reads from Postgres and the broker is what is there."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from grns.bootstrap.app import App
from grns.maintenance import queue_stats as gauge
from grns.maintenance import scan_window
from grns.maintenance.gauges import GaugeCollector
from grns.maintenance.scan_window import ScanPlaces
from grns.model import subjects
from grns.postgres.database import Connection, Database
from grns.postgres.statements import statement
from grns.tasks import pauses as pause
from grns.tasks.budgets import Budgets
from grns.telemetry.metrics_listener import MetricsListener
from grns.telemetry.service_signals import GaugesMeasured
from grns.telemetry.signal import Signal
from tests.support.admitters import put_limit
from tests.support.budgets import look_at_budgets, note_usage
from tests.support.harness import settings_for, submit, submit_many
from tests.support.store import fall_due, fetch, lapse, place

OLD = "update grns.tasks set queued_at = now() - interval '100 s' where task_type = $1"


async def worker(
    database: Database,
    name: str,
    *task_types: str,
    agent_type: str = "worker",
    workspace: str = "default",
    seen: str = "0 s",
) -> None:
    """Let there be a worker that was last seen so long ago."""
    await fetch(
        database,
        "insert into grns.workers (agent_id, workspace, agent_type, host, pid, version, concurrency, running,"
        " task_types, lease_seconds, last_seen_at)"
        " values ($1, $2, $3, 'h', 1, '0', 5, 2, $4, 15, now() - $5::text::interval)",
        name, workspace, agent_type, list(task_types), seen,
    )  # fmt: skip


async def unserved(database: Database) -> dict[tuple[str, str, str], int]:
    """Return what nobody serves, and for how many tens of seconds."""
    return {
        (lane.workspace, lane.agent_type, task_type): round(seconds / 10)
        for lane in await gauge.queue_ages(database)
        for task_type, seconds in lane.unserved_after_seconds.items()
    }


# ---------------------------------------------------------------- lanes


async def test_the_age_of_a_lane_is_that_of_its_oldest_task(shared: Database) -> None:
    await submit_many(shared, 2, priority=1, task_type="old")
    await submit_many(shared, 1, agent_type="nobody", task_type="old")
    await fetch(shared, OLD, "old")
    await submit_many(shared, 1, priority=1)
    await worker(shared, "idle", "noop", agent_type="idle")
    ages = {
        (lane.agent_type, lane.priority): round(lane.oldest_seconds / 10)
        for lane in await gauge.queue_ages(shared)
    }
    assert ages == {
        (agent_type, priority): 10 if (agent_type, priority) in (("worker", 1), ("nobody", 2)) else 0
        for agent_type in ("worker", "nobody", "idle")
        for priority in subjects.PRIORITIES
    }, "lanes that are empty are there, where somebody works"


async def test_a_reading_begins_shortly_before_what_the_last_one_found_first(
    shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan: ScanPlaces[tuple[str, str]] = ScanPlaces()

    async def ages() -> dict[str, int]:
        found = await gauge.queue_ages(shared, scan)
        return {queue.agent_type: round(queue.oldest_seconds / 10) for queue in found if queue.priority == 2}

    async def queue(pool: str, seconds: float) -> None:
        await submit_many(shared, 1, agent_type=pool)
        await fetch(
            shared,
            "update grns.tasks set queued_at = now() - $2 * interval '1 s' where agent_type = $1"
            " and queued_at > now() - interval '5 s'",
            pool, seconds,
        )  # fmt: skip

    for pool, seconds in (("m", 100.0), ("a", 50.0), ("z", 60.0), ("n", 70.0)):
        await queue(pool, seconds)  # before, between and behind those that are known
        assert (await ages())[pool] == seconds / 10
    await queue("m", 110.0)
    assert (await ages())["m"] == 11, "shortly before"
    await queue("m", 200.0)  # of a transaction that has been open for long
    assert (await ages())["m"] == 11
    await fetch(shared, "delete from grns.tasks where agent_type = 'a'")
    assert await ages() == {"m": 11, "n": 7, "z": 6}
    monkeypatch.setattr(scan_window, "_READ_EVERYWHERE_EVERY_SECONDS", 0.0)
    assert await ages() == {"m": 20, "n": 7, "z": 6}


async def test_lags_are_told_from_where_the_last_reading_found_the_first(
    shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan: ScanPlaces[str] = ScanPlaces()

    async def lags() -> tuple[int, int]:
        found = await gauge.lags(shared, scan)
        return round(found.due_seconds / 10), round(found.lapsed_seconds / 10)

    due, late = await place(shared, "retry_wait"), await place(shared, "running")
    assert await lags() == (0, 0)
    columns = {"next_attempt_at": due, "lease_until": late}
    for ago, told in ((10, (1, 1)), (20, (2, 2)), (60, (0, 0))):
        for column, task in columns.items():
            await fetch(
                shared,
                f"update grns.tasks set {column} = now() - $2 * interval '1 s' where id = $1",
                task.id, float(ago),
            )  # fmt: skip
        assert await lags() == told
    monkeypatch.setattr(scan_window, "_READ_EVERYWHERE_EVERY_SECONDS", 0.0)
    assert await lags() == (6, 6)


async def test_dead_entries_before_what_was_found_first_are_passed_over(shared: Database) -> None:
    """While an old snapshot is open, what was queued, due or leased stays in the indexes."""
    await submit_many(shared, 200)
    waiting, running = await place(shared, "retry_wait"), await place(shared, "running")
    moves = [
        "update grns.tasks set queued_at = now() - $1 * interval '1 s' where queued_at is not null",
        "update grns.tasks set next_attempt_at = now() - $1 * interval '1 s' where id = $2",
        "update grns.tasks set lease_until = now() - $1 * interval '1 s' where id = $2",
    ]
    async with shared.transaction() as connection:

        async def move(seconds: float) -> None:
            """Have all entries be of so long ago: the former ones are dead, and stay for this transaction."""
            await connection.execute(moves[0], seconds)
            await connection.execute(moves[1], seconds, waiting.id)
            await connection.execute(moves[2], seconds, running.id)

        async def read_of(name: str, *arguments: Any) -> Counter[str]:
            before = await index_reads(connection)
            await connection.fetch(statement(name), *arguments)
            return Counter(await index_reads(connection)) - Counter(before)

        for ago in range(100, 0, -1):
            await move(float(ago))
        since = await connection.fetchval("select now() - interval '1.5 s'")
        whole = await read_of("read_queue_ages", 1000, 1000, [], [], [])
        front = await read_of("read_queue_ages", 1000, 1000, ["default"], ["worker"], [since])
        assert front["tasks_ready"] <= 2 * 200 + 10 < 100 * 200 < whole["tasks_ready"]
        whole, front = await read_of("read_lags", None, None), await read_of("read_lags", since, since)
        for index in ("tasks_due", "tasks_lease"):
            assert front[index] <= 4 < 99 <= whole[index]


async def test_a_reading_of_everything_that_fails_is_not_tried_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With an old snapshot it may take longer than a statement may."""
    clock, now = Clock(), datetime.now(UTC)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    scan: ScanPlaces[str] = ScanPlaces()
    assert scan.places() == {}
    scan.note({"a": None, "b": now}, now)
    before = dict(scan.places())
    clock.now += 301
    assert scan.places() == {}
    assert scan.places() == before, "and if that fails: as before"
    clock.now += 301
    assert scan.places() == {}
    scan.note({"b": now}, now)
    assert set(scan.places()) == {"b"}
    scan.note({"b": now}, now - timedelta(seconds=1))
    assert scan.places() == {}, "the clock was set back"


async def test_without_an_order_to_stop_no_task_is_read(shared: Database) -> None:
    for _ in range(3):
        await place(shared, "running")
    async with shared.transaction() as connection:
        before = await index_reads(connection)
        await connection.fetch(statement("end_ordered"), 0.0, 200)
        assert await index_reads(connection) == before


class Clock:
    now = 1000.0


async def index_reads(connection: Connection) -> dict[str, int]:
    """Return how many entries of each index of the tasks this transaction has read."""
    rows = await connection.fetch(
        "select c.relname, pg_stat_get_xact_tuples_returned(c.oid) as rows from pg_index i"
        " join pg_class c on c.oid = i.indexrelid where i.indrelid = 'grns.tasks'::regclass"
    )
    return {row["relname"]: row["rows"] for row in rows}


async def test_nothing_queued_and_nobody_there_is_no_lane(shared: Database) -> None:
    await place(shared, "succeeded")
    await worker(shared, "gone", "noop", seen="1 min")
    assert await gauge.queue_ages(shared) == []


@pytest.mark.parametrize(
    ("workers", "is_served"),
    [
        ([], False),
        ([("one", ("noop",), {})], True),
        ([("one", ("other",), {})], False),
        ([("one", ("other",), {}), ("two", ("noop", "x"), {})], True),
        ([("one", ("noop",), {"seen": "1 min"})], False),
        ([("one", ("noop",), {"agent_type": "writer"})], False),
        ([("one", ("noop",), {"workspace": "acme"})], False),
    ],
    ids=["nobody", "one", "no handler", "one of two", "dead", "other agent type", "other workspace"],
)
async def test_a_type_is_served_by_a_live_worker_with_a_handler(
    shared: Database, workers: Sequence[tuple[str, Sequence[str], dict[str, str]]], is_served: bool
) -> None:
    await submit_many(shared, 2)
    await fetch(shared, OLD, "noop")
    for name, task_types, fields in workers:
        await worker(shared, name, *task_types, **fields)
    assert await unserved(shared) == ({} if is_served else {("default", "worker", "noop"): 10})


async def test_what_is_served_hides_nothing_for_long(shared: Database) -> None:
    """What nobody serves is seen among the first hundred; behind more, as soon as these are gone."""
    await submit_many(shared, 99, task_type="served")
    await fetch(shared, OLD, "served")
    await submit_many(shared, 1, task_type="orphan")
    await worker(shared, "one", "served")
    assert set(await unserved(shared)) == {("default", "worker", "orphan")}
    await submit_many(shared, 1, task_type="served", priority=2)
    await fetch(shared, OLD, "served")
    assert await unserved(shared) == {}
    await fetch(shared, "delete from grns.tasks where task_type = 'served'")
    assert set(await unserved(shared)) == {("default", "worker", "orphan")}


@pytest.mark.parametrize("task_type", [None, "noop"])
async def test_what_is_paused_nobody_has_to_serve(shared: Database, task_type: str | None) -> None:
    await submit_many(shared, 1)
    await pause.begin(
        shared, workspace="default", agent_type="worker", task_type=task_type, actor="me",
        reason=None, until=None,
    )  # fmt: skip
    assert await unserved(shared) == {}
    await fetch(shared, "update grns.pauses set until = now() - interval '1 s'")
    assert set(await unserved(shared)) == {("default", "worker", "noop")}


# ---------------------------------------------------------------- lags, states, workers


async def test_without_work_nothing_waits(shared: Database) -> None:
    assert await gauge.lags(shared) == gauge.Lags(0, 0, 0, 0, 0, 0, 0, 0)


async def test_what_waits_for_the_daemons_is_told_by_its_oldest(shared: Database) -> None:
    due, late = await place(shared, "retry_wait"), await place(shared, "running")
    assert (await gauge.lags(shared)).due_seconds == 0, "it is not due yet"
    await fall_due(shared, due.id)
    await lapse(shared, late.id)
    await fetch(
        shared, "update grns.tasks set next_attempt_at = now() - interval '40 s' where id = $1", due.id
    )
    await fetch(shared, "update grns.tasks set lease_until = now() - interval '20 s' where id = $1", late.id)
    await fetch(shared, "update grns.events set created_at = now() - interval '60 s'")
    lags = await gauge.lags(shared)
    assert [round(seconds / 10) for seconds in (lags.due_seconds, lags.lapsed_seconds)] == [4, 2]
    unread = (lags.unpublished_seconds, lags.uncounted_seconds, lags.unfollowed_seconds)
    assert [round(seconds / 10) for seconds in unread] == [6, 6, 6]


async def test_tasks_under_limits_wait_for_an_admitter(shared: Database) -> None:
    await put_limit(shared, key="tenant_id", max_tasks=1)
    await submit(shared, payload={"tenant_id": "acme"})
    await fetch(shared, "update grns.tasks set updated_at = now() - interval '60 s'")
    lease = "update grns.leases set until = now() + $1 * interval '1 s' where name = 'admitter'"
    for until, waits in ((5.0, 0), (-30.0, 3), (-90.0, 6)):
        await fetch(shared, lease, until)
        assert round((await gauge.lags(shared)).unadmitted_seconds / 10) == waits
    await fetch(shared, "update grns.leases set until = '-infinity' where name = 'admitter'")
    assert round((await gauge.lags(shared)).unadmitted_seconds / 10) == 6, "none has ever led"
    await fetch(shared, "delete from grns.tasks")
    assert (await gauge.lags(shared)).unadmitted_seconds == 0


async def test_a_question_waits_until_a_person_looks(shared: Database) -> None:
    task = await submit(shared)
    await fetch(
        shared,
        "insert into grns.questions (id, workspace, task_id, step, kind, title, form, asked_of, digest,"
        " attempt, asked_at) values (gen_random_uuid(), 'default', $1, 'ask x', 'question', 'x', '{}', '{}',"
        " '', 1, now() - interval '60 s')",
        task.id,
    )
    assert round((await gauge.lags(shared)).unseen_seconds / 10) == 6
    await fetch(shared, "update grns.questions set seen_at = now()")
    assert (await gauge.lags(shared)).unseen_seconds == 0


async def test_what_is_published_beyond_a_gap_is_no_lag(shared: Database) -> None:
    await submit_many(shared, 3)
    (row,) = await fetch(shared, "select min(seq) as first, max(seq) as last from grns.events")
    first, last = row["first"], row["last"]
    for rounds, (low, beyond, is_behind) in enumerate(
        (
            (last, [], False),
            (last - 1, [], True),
            (first - 5, [(first, last + 1)], False),  # numbers that nobody will ever see
            (first - 5, [(first, last)], True),
            (first, [(first + 2, last + 1)], True),
        )
    ):
        for table, column in (
            ("relay_cursor", "published"),
            ("count_cursor", "counted"),
            ("follow_cursor", "followed"),
        ):
            await fetch(
                shared,
                f"update grns.{table} set low = $1, {column} = $2",
                low, [asyncpg.Range(*one) for one in beyond],
            )  # fmt: skip
        lags = await gauge.lags(shared)
        unread = (lags.unpublished_seconds, lags.uncounted_seconds, lags.unfollowed_seconds)
        assert [seconds > 0 for seconds in unread] == [is_behind] * 3, rounds


async def test_states_are_as_they_were_counted(shared: Database) -> None:
    await fetch(
        shared,
        "insert into grns.task_counts values ('default', 'a', 'dead', 2), ('default', 'b', 'dead', 3),"
        " ('acme', 'a', 'queued', 1), ('acme', 'b', 'running', -1)",
    )
    assert sorted(await gauge.states(shared)) == [
        ("acme", "queued", 1), ("acme", "running", 0), ("default", "dead", 5),
    ]  # fmt: skip


async def test_workers_are_those_that_live(shared: Database) -> None:
    for name, seen in (("one", "0 s"), ("two", "1 s"), ("gone", "1 min")):
        await worker(shared, name, "noop", seen=seen)
    await worker(shared, "stopped", "noop")
    await fetch(shared, "update grns.workers set stopped_at = now() where agent_id = 'stopped'")
    assert await gauge.pool_capacities(shared) == [gauge.PoolCapacity("default", "worker", 2, 10, 4)]


# ---------------------------------------------------------------- what it tells


async def test_all_that_it_reads_is_shown(shared: Database) -> None:
    metrics = MetricsListener()
    await submit_many(shared, 2, priority=0, task_type="orphan")
    await fetch(shared, OLD, "orphan")
    await worker(shared, "one", "noop")
    await fetch(shared, "insert into grns.task_counts values ('default', 'noop', 'queued', 7)")
    budgets = Budgets(shared, "default", "tests")
    await budgets.put("writing", max_cost=10, max_tokens=100)
    await budgets.put("old", max_cost=10)
    await note_usage(shared, cost=2.5, input_tokens=60)
    await look_at_budgets(shared)
    await fetch(shared, "update grns.budgets set begins_on = begins_on - 400 where name = 'old'")
    transport = App(settings_for(shared.url)).transport("test")
    meter = GaugeCollector(database=shared, transport=transport, emit=metrics.receive)
    for read in meter.chores.values():
        assert not await read(), "it is done in one go"
    value = metrics.registry.get_sample_value
    pool = {"workspace": "default", "agent_type": "worker"}
    assert 100 <= (value("grns_queue_oldest_seconds", pool | {"priority": "0"}) or 0) < 160
    assert value("grns_queue_oldest_seconds", pool | {"priority": "3"}) == 0
    assert 100 <= (value("grns_unserved_oldest_seconds", pool | {"task_type": "orphan"}) or 0) < 160
    assert [value(f"grns_worker{name}", pool) for name in ("s", "_slots", "_slots_taken")] == [1, 5, 2]
    assert value("grns_due_oldest_seconds") == 0
    used = [
        value("grns_budget_used_ratio", {"workspace": "default", "budget": name})
        for name in ("writing", "old")
    ]
    assert used == [0.6, 0]
    states = [
        value("grns_tasks", {"workspace": "default", "status": status}) for status in ("queued", "dead")
    ]
    assert states == [7, 0], "where nothing has died yet, the first one is an increase"
    await fetch(shared, "delete from grns.tasks")
    await fetch(shared, "delete from grns.workers")
    for read in meter.chores.values():
        await read()
    assert value("grns_queue_oldest_seconds", pool | {"priority": "0"}) is None, "what is gone is not shown"
    assert value("grns_unserved_oldest_seconds", pool | {"task_type": "orphan"}) is None
    assert value("grns_workers", pool) is None


async def test_while_the_broker_is_away_nobody_knows_how_far_consumers_are(shared: Database) -> None:
    emitted: list[Signal] = []
    transport = App(settings_for(shared.url)).transport("test")
    await GaugeCollector(database=shared, transport=transport, emit=emitted.append).read_consumers()
    assert [
        (signal.metric, list(signal.readings)) for signal in emitted if isinstance(signal, GaugesMeasured)
    ] == [(f"grns_consumer_{what}_messages", []) for what in ("pending", "unacknowledged", "redelivered")]
