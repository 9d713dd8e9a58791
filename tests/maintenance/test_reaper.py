"""When reapers hold still: after an outage live workers renew first, and nobody waits longer than that."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.maintenance.reaper import reap, tick_reaper
from grns.postgres.database import Database
from grns.telemetry.signal import Signal
from grns.telemetry.task_signals import ReaperGraceStarted
from grns.worker import registry as agent
from tests.support.harness import eventually, settings_for
from tests.support.store import WORKER, fetch, lapse, place, row_of

TICK = 2.0


async def pools(database: Database, *leases: float) -> None:
    """Let there be a worker with each of these leases."""
    for number, lease_seconds in enumerate(leases):
        who = replace(WORKER, agent_id=f"pool-{number}", lease_seconds=lease_seconds)
        await agent.register(database, who, concurrency=1, version="1")


async def outage(database: Database, seconds: float) -> None:
    """Let nobody have ticked for a while, nor anything else have happened."""
    await fetch(
        database,
        "update grns.reaper_state set last_tick_at = last_tick_at - $1 * interval '1 s',"
        " reap_until = reap_until - $1 * interval '1 s', hold_until = hold_until - $1 * interval '1 s'",
        seconds,
    )


async def hold_seconds(database: Database, own_lease: float, tick_seconds: float = TICK) -> int:
    """Tick; return how long reapers hold still from now on, in whole seconds."""
    is_holding = await tick_reaper(database, own_lease, tick_seconds)
    (row,) = await fetch(
        database,
        "select round(coalesce(extract(epoch from hold_until - last_tick_at), 0))::integer as seconds"
        " from grns.reaper_state",
    )
    assert is_holding == (row["seconds"] > 0)
    return max(0, int(row["seconds"]))


@pytest.mark.parametrize("own_lease", [15.0, 600.0], ids=["own_short", "own_long"])
@pytest.mark.parametrize(
    ("silent_seconds", "held_seconds"),
    [
        pytest.param(14.0, 0, id="shorter_than_any_lease"),
        pytest.param(60.0, 15, id="the_short_lease_is_over_and_the_long_one_is_not"),
        pytest.param(190.0, 15, id="of_the_long_one_a_third_is_left"),
        pytest.param(210.0, 600, id="both_may_be_over"),
        pytest.param(700.0, 600, id="both_are_over"),
    ],
)
async def test_one_pool_with_a_long_lease_changes_nothing_for_the_others(
    shared: Database, own_lease: float, silent_seconds: float, held_seconds: int
) -> None:
    await pools(shared, 600.0, 15.0)
    assert await hold_seconds(shared, own_lease) == 0, "nobody has ticked before"
    await outage(shared, silent_seconds)
    assert await hold_seconds(shared, own_lease) == held_seconds


@pytest.mark.parametrize(
    ("lease_seconds", "silent_seconds", "held_seconds"),
    [
        pytest.param(1.0, 14.0, 0, id="a_short_lease_makes_no_outage_of_a_short_silence"),
        pytest.param(1.0, 16.0, 15, id="nor_the_hold_shorter"),
        pytest.param(300.0, 110.0, 60, id="nor_does_a_long_one_make_it_longer"),
    ],
)
async def test_tick_reaper_with_workers_over_http_holds_as_long_whatever_leases_they_ask_for(
    shared: Database, lease_seconds: float, silent_seconds: float, held_seconds: int
) -> None:
    """M6: an agent with a lease of a second had reapers of all workspaces hold after 6 s instead of 15 s."""
    who = replace(WORKER, lease_seconds=lease_seconds)
    await agent.register(shared, who, concurrency=1, version="1", host="http", pid=agent.NO_PROCESS)
    assert await hold_seconds(shared, 15.0) == 0
    await outage(shared, silent_seconds)
    assert await hold_seconds(shared, 15.0) == held_seconds


async def test_a_hold_is_not_made_longer_while_it_runs(shared: Database) -> None:
    await hold_seconds(shared, 15.0)
    await outage(shared, 60.0)
    assert await hold_seconds(shared, 15.0) == 15
    await outage(shared, 10.0)
    assert await hold_seconds(shared, 15.0) == 5
    await outage(shared, 6.0)
    assert await hold_seconds(shared, 15.0) == 0


@pytest.mark.parametrize(
    ("silent_seconds", "held_seconds"), [(3.0, 15), (400.0, 600)], ids=["at_once", "after_long"]
)
async def test_after_a_restart_reapers_hold_too(
    shared: Database, silent_seconds: float, held_seconds: int
) -> None:
    await pools(shared, 600.0, 15.0)
    await hold_seconds(shared, 15.0)
    await fetch(shared, "update grns.reaper_state set server_started_at = now() - interval '1 year'")
    await outage(shared, silent_seconds)
    assert await hold_seconds(shared, 15.0) == held_seconds


@pytest.mark.parametrize(("own_lease", "pool"), [(15.0, 1.0), (1.0, 15.0)], ids=["own_long", "own_short"])
async def test_who_ticks_seldom_does_not_take_its_own_pauses_for_outages(
    shared: Database, own_lease: float, pool: float
) -> None:
    await pools(shared, pool)
    await hold_seconds(shared, own_lease)
    await outage(shared, 2 * TICK)
    assert await hold_seconds(shared, own_lease) == 0
    await outage(shared, 4 * TICK)
    assert await hold_seconds(shared, own_lease) > 0


async def test_nothing_is_reaped_where_the_server_slept_after_the_tick(shared: Database) -> None:
    """The tick and the reaping are two statements: what comes between them is seen by the second."""
    await pools(shared, 600.0)
    first, second = await place(shared, "running"), await place(shared, "running")
    assert not await tick_reaper(shared, 15.0, TICK)
    await lapse(shared, first.id)
    await outage(shared, 14.0)
    assert [row["id"] for row in await reap(shared, 10, None)] == [first.id], "it was but slow"
    await lapse(shared, second.id)
    await outage(shared, 46.0)
    assert await reap(shared, 10, None) == [], "it has slept"
    assert await tick_reaper(shared, 15.0, TICK)
    assert await reap(shared, 10, None) == [], "another reaper may have begun to hold after our tick"
    await outage(shared, 16.0)
    assert not await tick_reaper(shared, 15.0, 6.0)
    assert [row["id"] for row in await reap(shared, 10, None)] == [second.id]


async def test_after_a_hold_it_looks_as_far_back_as_at_its_start(shared: Database) -> None:
    """What ended meanwhile may lie further back than it looks otherwise, and waits for no later round."""
    told: list[Signal] = []

    class _Note:
        def receive(self, signal: Signal) -> None:
            told.append(signal)

    app = App(settings_for(shared.url, lease_seconds=15.0, reaper_interval_seconds=0.05), (_Note(),))
    held = await place(shared, "running")
    reaper = daemons.reaper(app, shared, app.transport("test"))
    running = asyncio.create_task(reaper.run())

    async def has_ticked() -> bool:
        return bool(await fetch(shared, "select from grns.reaper_state where last_tick_at is not null"))

    async def is_holding() -> bool:
        return any(isinstance(signal, ReaperGraceStarted) for signal in told)

    async def is_reaped() -> bool:
        return bool((await row_of(shared, held.id))["status"] == "queued")

    await eventually(has_ticked)
    await fetch(shared, "update grns.reaper_state set hold_until = now() + interval '1 h'")
    await eventually(is_holding)
    await fetch(
        shared, "update grns.tasks set lease_until = now() - interval '10 min' where id = $1", held.id
    )
    await fetch(shared, "update grns.reaper_state set hold_until = now()")
    await eventually(is_reaped, within_seconds=10.0)
    reaper.stop()
    await running


async def test_reaper_that_holds_logs_it_once_as_info(shared: Database) -> None:
    """newcomer 14: a restart logged a warning at each tick, and no word of it being normal."""
    told: list[Signal] = []

    class _Note:
        def receive(self, signal: Signal) -> None:
            told.append(signal)

    app = App(settings_for(shared.url, lease_seconds=15.0, reaper_interval_seconds=0.05), (_Note(),))
    reaper = daemons.reaper(app, shared, app.transport("test"))
    running = asyncio.create_task(reaper.run())

    async def ticked() -> object:
        (row,) = await fetch(shared, "select last_tick_at from grns.reaper_state")
        return row["last_tick_at"]

    await eventually(ticked)
    await fetch(shared, "update grns.reaper_state set hold_until = now() + interval '1 h'")
    for _ in range(5):
        seen_at = await ticked()

        async def has_ticked_since(seen_at: object = seen_at) -> bool:
            return await ticked() != seen_at

        await eventually(has_ticked_since)
    reaper.stop()
    await running
    (hold,) = [signal for signal in told if isinstance(signal, ReaperGraceStarted)]
    assert hold.level == "info"
    assert "normal after a restart" in hold.reason
