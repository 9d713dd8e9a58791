"""The counter as a daemon: one leads, others stand by, and what goes wrong is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.postgres.database import Database
from grns.stats.aggregator import StatsAggregator
from grns.telemetry.service_signals import LogCounted, StatsBecameLeader, StatsStandby, TickFailed
from grns.telemetry.signal import Signal
from tests.support.aggregators import begin_here, counted, there
from tests.support.harness import eventually, settings_for, submit_many
from tests.support.relays import Note
from tests.support.store import fetch, place, stranger


@pytest.fixture(autouse=True)
async def begun(shared: Database) -> None:
    """Let what is counted here begin here."""
    await begin_here(shared)


@asynccontextmanager
async def counting(
    database: Database, count: int = 1
) -> AsyncIterator[Sequence[tuple[StatsAggregator, Note]]]:
    """Run counters meanwhile."""
    async with AsyncExitStack() as resources:
        running = []
        for _ in range(count):
            note = Note()
            app = App(settings_for(database.url), (note,))
            counter = daemons.stats_aggregator(app, database, app.transport("test"))
            counter.tick_seconds = 0.05
            resources.push_async_callback(asyncio.wait_for, asyncio.create_task(counter.run()), 30)
            resources.callback(counter.stop)
            running.append((counter, note))
        yield running


async def are_right(database: Database) -> bool:
    """Tell whether the counts are those of the tasks."""
    return await counted(database) == await there(database)


def of(note: Note, kind: type[Signal]) -> list[Signal]:
    """Return what was told of a kind."""
    return [signal for signal in note.emitted if isinstance(signal, kind)]


async def test_it_counts_as_it_happens(shared: Database) -> None:
    async with counting(shared) as ((_, note),):
        for road in ("succeeded", "dead", "cancelled"):
            await place(shared, road)
            await eventually(lambda: are_right(shared))
        await submit_many(shared, 500)
        await eventually(lambda: are_right(shared))
    assert len(of(note, StatsBecameLeader)) == 1
    assert sum(signal.rows for signal in note.emitted if isinstance(signal, LogCounted)) >= 500
    assert of(note, TickFailed) == []


async def test_a_standby_goes_on_where_the_leader_ended(shared: Database) -> None:
    async with counting(shared, 2) as counters:

        async def leaders() -> list[tuple[StatsAggregator, Note]]:
            return [one for one in counters if of(one[1], StatsBecameLeader)]

        ((counter, told),) = await eventually(leaders)
        await submit_many(shared, 10)
        await eventually(lambda: are_right(shared))
        assert len(await leaders()) == 1
        counter.stop()

        async def both_have_led() -> bool:
            return len(await leaders()) == 2

        await eventually(both_have_led, within_seconds=3.0)
        await submit_many(shared, 10)
        await eventually(lambda: are_right(shared))
    assert [signal.reason for signal in told.emitted if isinstance(signal, StatsStandby)] == ["stopped"]


async def test_one_whose_lead_was_taken_stands_by(shared: Database) -> None:
    async with counting(shared) as ((_, note),):
        await eventually(lambda: note.has_told(StatsBecameLeader))
        await fetch(
            shared,
            "update grns.leases set epoch = epoch + 1, owner = 'other', until = now() + interval '1 h'"
            " where name = 'stats'",
        )
        await submit_many(shared, 3)
        await eventually(lambda: note.has_told(StatsStandby))
        assert await counted(shared) == {}
        await fetch(shared, "update grns.leases set until = now() - interval '1 s'")
        await eventually(lambda: are_right(shared))
    assert len(of(note, StatsBecameLeader)) == 2


async def test_what_it_cannot_write_now_it_writes_later(shared: Database) -> None:
    """Nothing is lost of what it had read."""
    await submit_many(shared, 50)
    async with stranger(shared) as connection:
        await connection.execute("lock table grns.task_counts in share mode")
        async with counting(shared) as ((_, note),):
            await eventually(lambda: note.has_told(TickFailed))
            assert await counted(shared) == {}
            await connection.execute("commit")
            await eventually(lambda: are_right(shared))
