"""A pool is paused and resumed by hand, with a broker and without: nothing of it runs in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.support.harness import (
    START_SECONDS,
    Fleet,
    all_in,
    check_stories,
    eventually,
    ready,
    rows_of,
    submit_many,
)

pytestmark = pytest.mark.timeout(180)


async def call(fleet: Fleet, *arguments: str) -> None:
    """Run one command line to its end; it has to end well."""
    process = fleet.start(*arguments)
    assert await asyncio.to_thread(process.wait, START_SECONDS) == 0, fleet.log_of(process)


async def untouched(database: Database, ids: list[str]) -> bool:
    """Tell whether these tasks wait in the queue, and none of them was ever begun."""
    return {(row["status"], row["attempt"]) for row in (await rows_of(database, ids)).values()} == {
        ("queued", 0)
    }


async def test_nothing_of_a_paused_pool_runs_and_all_of_it_afterwards(
    fleet: Fleet, database: Database, broker: LocalNats
) -> None:
    fleet.start("server", GRNS_JANITOR_INTERVAL_SECONDS="0.5")
    worker = fleet.start("worker", "start", "tests.support.pools:pool")
    scout = fleet.start("worker", "start", "tests.support.pools:pool", GRNS_TEST_AGENT_TYPE="scout")
    await ready(database, worker, scout)
    await all_in(database, await submit_many(database, 3), within_seconds=30)

    await call(fleet, "pool", "pause", "worker", "--reason", "deploy")
    waiting = await submit_many(database, 40)

    async def scouts_go_on() -> None:
        """What another pool does meanwhile is time enough for this one to do something."""
        await all_in(database, await submit_many(database, 20, agent_type="scout"), within_seconds=30)

    async def has_heard() -> bool:
        return bool(fleet.facts_of(worker, "pool_paused"))

    await scouts_go_on()
    await eventually(has_heard)
    assert await untouched(database, waiting)

    await asyncio.to_thread(broker.kill)  # whoever finds its tasks in Postgres obeys too
    waiting += await submit_many(database, 5)
    for _ in range(2):
        await scouts_go_on()
    assert await untouched(database, waiting)
    await asyncio.to_thread(broker.start)

    await call(fleet, "pool", "resume", "worker")
    await all_in(database, waiting, within_seconds=30)
    assert fleet.facts_of(worker, "pool_resumed")
    assert not fleet.facts_of(scout, "pool_paused")
    await check_stories(database, waiting)


async def test_a_backlog_without_commands_is_caught_up_beside_what_is_delivered(
    fleet: Fleet, database: Database, journal: Callable[[], list[str]]
) -> None:
    """Those of a paused task type were acknowledged: who is delivered others has to look for its tasks."""
    fleet.start("server")
    worker = fleet.start("worker", "start", "tests.support.pools:pool", GRNS_LOG_LEVEL="debug")
    await ready(database, worker)
    await call(fleet, "pool", "pause", "worker", "--type", "effect")
    paused = await submit_many(database, 60, task_type="effect")

    async def are_refused() -> bool:
        refused = [fact["task_id"] for fact in fleet.facts_of(worker, "task_not_claimed")]
        return set(paused) <= set(refused)

    await all_in(database, await submit_many(database, 20), within_seconds=30)
    await eventually(are_refused, within_seconds=30)
    assert await untouched(database, paused)

    await call(fleet, "pool", "resume", "worker", "--type", "effect")
    is_over = asyncio.Event()

    async def go_on_delivering() -> None:
        while not is_over.is_set():
            await all_in(database, await submit_many(database, 5), within_seconds=30)

    delivering = asyncio.create_task(go_on_delivering())
    await all_in(database, paused, within_seconds=30)
    is_over.set()
    await delivering
    await check_stories(database, paused)
    assert sum(line.startswith("end ") for line in journal()) == len(paused)
