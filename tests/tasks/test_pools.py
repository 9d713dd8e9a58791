"""Pools as they are listed: who works in them, what waits in their priorities, and what is paused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grns.postgres.database import Database
from grns.tasks import pauses as pause
from grns.tasks import pools as pool
from grns.worker import registry as agent
from tests.support.harness import submit_many
from tests.support.store import OTHER_WORKER, WORKER, fetch, place


async def begin_pause(database: Database, agent_type: str, *, workspace: str = "default") -> None:
    """Pause a pool."""
    await pause.begin(
        database, workspace=workspace, agent_type=agent_type, task_type=None, actor="cli:me@here",
        reason="deploy", until=None,
    )  # fmt: skip


async def test_a_pool_has_the_workers_that_live_and_what_waits_in_its_lanes(shared: Database) -> None:
    lost, ended = (replace(WORKER, agent_id=name) for name in ("worker-lost", "worker-ended"))
    for who, slots in ((WORKER, 4), (OTHER_WORKER, 2), (lost, 100), (ended, 100)):
        await agent.register(shared, who, concurrency=slots, version="1")
    await agent.touch(shared, WORKER.agent_id, idle_seconds=0.0, running=3)
    await fetch(
        shared,
        "update grns.workers set last_seen_at = now() - interval '1 min' where agent_id = $1",
        lost.agent_id,
    )
    await agent.stop(shared, ended.agent_id)
    await submit_many(shared, 2, priority=1)
    await fetch(shared, "update grns.tasks set queued_at = now() - interval '100 s'")
    await submit_many(shared, 3, priority=3)
    for road in ("running", "waiting", "retry_wait", "succeeded"):
        await place(shared, road)
    await begin_pause(shared, "worker")
    (found,) = (await pool.list_pools(shared, workspace="default")).rows
    priorities = found.priorities
    assert [(one.priority, one.queued, one.has_more) for one in priorities] == [
        (0, 0, False),
        (1, 2, False),
        (2, 0, False),
        (3, 3, False),
    ]
    assert [one.oldest_seconds is None for one in priorities] == [True, False, True, False]
    oldest_seconds = priorities[1].oldest_seconds
    assert found.oldest_seconds == oldest_seconds
    assert oldest_seconds is not None
    assert 100.0 <= oldest_seconds < 160.0
    (paused,) = found.pauses
    assert (paused.task_type, paused.paused_by, paused.reason) == (None, "cli:me@here", "deploy")
    assert (found.workspace, found.agent_type) == ("default", "worker")
    assert (found.workers, found.slots, found.running, found.queued) == (2, 6, 3, 5)
    assert not found.has_more


async def test_pools_are_known_by_workers_tasks_or_pauses_and_paged(shared: Database) -> None:
    await agent.register(shared, replace(WORKER, agent_type="a-worker"), concurrency=1, version="1")
    await submit_many(shared, 2, agent_type="B-task")
    await submit_many(shared, 1, agent_type="c-task")
    await begin_pause(shared, "c-pause")
    await submit_many(shared, 1, agent_type="d-task", workspace="elsewhere")
    await begin_pause(shared, "e-pause", workspace="elsewhere")
    await submit_many(shared, 1, agent_type="f-delayed", delay_seconds=60.0)
    names: list[str] = []
    after: str | None = None
    for _ in range(4):
        page = await pool.list_pools(shared, workspace="default", limit=1, after=after)
        names += [row.agent_type for row in page.rows]
        after = page.next_cursor
    assert names == ["B-task", "a-worker", "c-pause", "c-task"], "in the order of the index"
    assert after is None
    everything = await pool.list_pools(shared, workspace="default")
    assert [row.agent_type for row in everything.rows] == names
    assert everything.next_cursor is None
    assert (await pool.list_pools(shared, workspace="nowhere")).rows == []


async def test_a_long_lane_is_counted_up_to_a_bound(
    shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_MOST_COUNTED", 4)
    for priority, count in enumerate((3, 4, 5)):
        await submit_many(shared, count, priority=priority)
    (found,) = await pool.read_pools(shared, "default", ["worker"])
    assert [(one.queued, one.has_more) for one in found.priorities] == [
        (3, False),
        (4, False),
        (4, True),
        (0, False),
    ]
    assert (found.queued, found.has_more) == (11, True)


async def test_a_pool_that_nobody_has_heard_of_is_empty(shared: Database) -> None:
    (found,) = await pool.read_pools(shared, "default", ["nobody"])
    assert (found.workers, found.slots, found.running, found.queued) == (0, 0, 0, 0)
    assert (found.oldest_seconds, found.pauses) == (None, [])
