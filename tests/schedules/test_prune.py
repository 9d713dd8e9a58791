"""Schedules that the code no longer has: no live worker declares them, and only users delete them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

import grns
from grns.model.json import DEFAULT_LIMITS
from grns.postgres.database import Database, run
from grns.schedules import service as store
from grns.schedules.model import Schedule
from grns.worker import registry
from grns.worker.declared import put_declared
from tests.schedules.test_scheduler import put
from tests.support.harness import eventually
from tests.support.store import WORKER, fetch

_WHO: dict[str, Any] = {"workspace": "default", "actor": "tests"}


def pool_of(*names: str) -> grns.Pool:
    """Return the pool `worker` with schedules of these names."""
    pool = grns.Pool("worker")

    @pool.task
    async def noop() -> None: ...

    for name in names:
        pool.every(timedelta(hours=1), name=name)(noop)
    return pool


async def start(
    database: Database, worker: str, *names: str, minutes_ago: float = 0, is_over_http: bool = False
) -> None:
    """Register a worker that started some minutes ago, and declare its schedules."""
    await registry.register(
        database,
        replace(WORKER, agent_id=worker),
        concurrency=1,
        version="1",
        pid=0 if is_over_http else None,
    )
    await put_declared(database, pool_of(*names).schedules, limits=DEFAULT_LIMITS, **_WHO)
    ago = timedelta(minutes=minutes_ago)
    await fetch(
        database, "update grns.workers set started_at = now() - $2::interval where agent_id = $1", worker, ago
    )
    declared = "update grns.schedules set declared_at = now() - $2::interval where name = any($1)"
    await fetch(database, declared, list(names), ago)


async def schedules(database: Database) -> Sequence[Schedule]:
    """Return all schedules."""
    return (await store.list_schedules(database, workspace="default", limit=10)).rows


async def are_waiting(database: Database, count: int) -> bool:
    """Return whether so many sessions wait for a lock."""
    (row,) = await fetch(
        database,
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock'",
    )
    return bool(row["count"] == count)


async def orphans(database: Database) -> list[str]:
    """Return the names of the schedules that could be pruned."""
    return [one.name for one in await store.list_orphans(database, workspace="default")]


async def test_prune_schedule_that_no_live_worker_declares_is_deleted(shared: Database) -> None:
    await put(shared)
    await start(shared, "old", "kept", "gone", minutes_ago=60)
    await start(shared, "new", "kept", minutes_ago=5)
    assert await orphans(shared) == [], "the old worker is still alive"
    await registry.stop(shared, "old")
    assert await orphans(shared) == ["gone"]
    trial = await store.prune(shared, is_trial=True, **_WHO)
    assert ([one.name for one in trial.schedules], await orphans(shared)) == (["gone"], ["gone"])
    await store.prune(shared, **_WHO)
    assert [one.name for one in await schedules(shared)] == ["hourly", "kept"]
    (event,) = await fetch(shared, "select payload from grns.events where kind = 'evt.schedule.deleted'")
    said = json.loads(event["payload"])
    assert (said["schedule"], said["actor"], said["reason"]) == (
        "gone",
        "tests",
        "no live worker declares it",
    )


@pytest.mark.parametrize(
    "new",
    [
        {"minutes_ago": 0.5},
        {"minutes_ago": 5, "is_over_http": True},
    ],
)
async def test_prune_pool_whose_worker_may_still_declare_keeps_its_schedules(
    shared: Database, new: Any
) -> None:
    await start(shared, "old", "gone", minutes_ago=60)
    await registry.stop(shared, "old")
    assert await orphans(shared) == [], "no worker is alive"
    await start(shared, "new", **new)
    assert await orphans(shared) == []


async def test_prune_silent_worker_is_not_alive(shared: Database) -> None:
    await start(shared, "old", "gone", minutes_ago=60)
    await start(shared, "new", minutes_ago=5)
    await fetch(
        shared, "update grns.workers set last_seen_at = now() - interval '1 hour' where agent_id = 'old'"
    )
    assert await orphans(shared) == ["gone"]


async def test_prune_schedule_changed_by_hand_is_kept(shared: Database) -> None:
    await start(shared, "old", "gone", minutes_ago=60)
    await start(shared, "new", minutes_ago=5)
    await registry.stop(shared, "old")
    await put(shared, "gone", cron=None, every_seconds=7200)
    assert (await store.read(shared, "gone", workspace="default")).declared_at is None
    assert await orphans(shared) == []


async def test_prune_worker_starts_between_list_and_delete_keeps_its_schedule(
    shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await start(shared, "old", "gone", "kept", minutes_ago=60)
    await start(shared, "new", minutes_ago=5)
    await registry.stop(shared, "old")
    list_them = store.list_orphans

    async def list_and_start(database: Database, *, workspace: str) -> Any:
        found = await list_them(database, workspace=workspace)
        await start(shared, "late", "kept")
        return found

    monkeypatch.setattr(store, "list_orphans", list_and_start)
    assert [one.name for one in (await store.prune(shared, **_WHO)).schedules] == ["gone"]
    assert [one.name for one in await schedules(shared)] == ["kept"]
    (event,) = await fetch(shared, "select payload from grns.events where kind = 'evt.schedule.deleted'")
    assert json.loads(event["payload"])["schedule"] == "gone"


@pytest.mark.parametrize("is_deleted_first", [True, False])
async def test_prune_and_declaration_at_one_moment_leave_the_schedule(
    shared: Database, is_deleted_first: bool
) -> None:
    await start(shared, "old", "daily", minutes_ago=60)
    await start(shared, "new", minutes_ago=5)
    await registry.stop(shared, "old")

    async def declare() -> None:
        await put_declared(shared, pool_of("daily").schedules, limits=DEFAULT_LIMITS, **_WHO)

    # Both wait for this lock, and get it in the order in which they came.
    async with shared.transaction() as connection:
        await run(connection, "lock_schedule", "default", "daily")
        both = [store.prune(shared, **_WHO), declare()]
        waiting = []
        for each in both if is_deleted_first else reversed(both):
            waiting.append(asyncio.create_task(each))
            await eventually(partial(are_waiting, shared, len(waiting)))
    await asyncio.gather(*waiting)
    (found,) = await schedules(shared)
    assert found.declared_at is not None
    deleted = await fetch(shared, "select 1 from grns.events where kind = 'evt.schedule.deleted'")
    assert len(deleted) == is_deleted_first
