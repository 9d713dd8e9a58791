"""Handlers that block, workers that freeze, heartbeats that die: leases are kept by those who live, only."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from grns.tasks.submit import Submitted
from tests.support.harness import (
    Fleet,
    all_in,
    check_everything,
    children_of,
    eventually,
    is_alive,
    is_stopped,
    ready,
    rows_of,
    submit,
)
from tests.support.pools import BLOCKERS

pytestmark = pytest.mark.timeout(180)

Journal = Callable[[], list[str]]

SLACK = 2.0
LONG_LEASE = 12.0  # a heartbeat process can be replaced within it, also where its start takes seconds
LONGER_THAN_A_LEASE = 1.3 * LONG_LEASE


def environment(lease: float) -> dict[str, str]:
    """Return settings for short leases."""
    return {"GRNS_LEASE_SECONDS": str(lease), "GRNS_SHUTDOWN_GRACE_SECONDS": "1"}


def start_worker(
    fleet: Fleet, lease: float, *, agent: str = "worker", slots: int = 3, failpoints: str = ""
) -> subprocess.Popen[bytes]:
    """Start a worker of some slots."""
    more = environment(lease) | {"GRNS_TEST_AGENT_TYPE": agent, "GRNS_FAILPOINTS": failpoints}
    return fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", str(slots), **more)


async def noted(journal: Journal, line: str, *, within_seconds: float = 20.0) -> None:
    """Wait until the journal has a line."""

    async def is_there() -> bool:
        return line in journal()

    await eventually(is_there, within_seconds=within_seconds)


async def test_blocked_for_ten_leases(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal
) -> None:
    """A handler that lets nothing else run for ten leases keeps its task, and its neighbours keep theirs."""
    lease = 1.0
    fleet.start("server", **environment(lease))
    workers = [start_worker(fleet, lease, agent=how) for how in BLOCKERS]
    threads = start_worker(fleet, lease, slots=4)
    await ready(database, *workers, threads)
    blocking, ids = [], []
    for how in BLOCKERS:
        ids.append((await submit(database, "thread", agent_type=how, payload={"seconds": 3 * lease})).id)
        ids.append((await submit(database, "effect", agent_type=how, payload={"seconds": 2 * lease})).id)
    for task_id in ids:
        await noted(journal, f"begin {task_id} 1")
    for how in BLOCKERS:
        payload = {"how": how, "seconds": 10 * lease}
        blocking.append((await submit(database, "block_loop", agent_type=how, payload=payload)).id)
        blocking.append((await submit(database, "block_thread", payload=payload)).id)
    ids.append((await submit(database, "effect", payload={"seconds": 2 * lease})).id)
    await all_in(database, [*blocking, *ids], within_seconds=90)  # three processes burn two cores
    stories = await check_everything(database, broker.url)
    for story in stories.values():
        assert [event["kind"] for event in story] == [
            "evt.task.queued", "evt.task.claimed", "evt.task.completed",
        ]  # fmt: skip
    expected = [f"{word} {task_id} 1" for word in ("begin", "end") for task_id in stories]
    assert sorted(journal()) == sorted(expected)
    for row in (await rows_of(database, blocking)).values():
        assert (row["finished_at"] - row["started_at"]).total_seconds() >= 10 * lease


@pytest.mark.parametrize("how", ["sleep_on", "hold_gil"])
async def test_a_stalled_handler_is_replaced_though_its_lease_is_renewed(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal, how: str
) -> None:
    lease, seconds = 3.0, 18.0
    fleet.start("server", **environment(lease))
    stuck = start_worker(fleet, lease, slots=1)
    await ready(database, stuck)
    task = await submit(database, "stall", payload={"how": how, "seconds": seconds}, priority=3)
    await noted(journal, f"begin {task.id} 1")
    began_at = time.monotonic()
    other = start_worker(fleet, lease)
    await ready(database, stuck, other)
    await all_in(database, [task.id], within_seconds=seconds - 3)
    assert time.monotonic() - began_at < seconds - 1, "not after the handler has ended"
    await noted(journal, f"end {task.id} 1")  # what it writes is refused
    row = (await rows_of(database, [task.id]))[task.id]
    assert (row["status"], row["attempt"], row["priority"]) == ("succeeded", 2, 2)
    (story,) = (await check_everything(database, broker.url)).values()
    assert [event["kind"] for event in story] == [
        "evt.task.queued", "evt.task.claimed", "evt.task.lease_expired", "evt.task.claimed",
        "evt.task.completed",
    ]  # fmt: skip


async def test_frozen_for_three_leases(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal, tmp_path: Path
) -> None:
    """Its tasks are taken back and run elsewhere; when it wakes, its handlers end, and it writes nothing."""
    lease = 2.0
    fleet.start("server", **environment(lease))
    # It stops itself at the worst moment: a handler has ended, and its outcome is not written.
    sleeper = start_worker(fleet, lease, failpoints="worker.handler_ended=stop#1")
    await ready(database, sleeper)
    now, later = tmp_path / "now", tmp_path / "later"
    ended = await submit(database, "until", payload={"file": str(now)})
    on_loop = await submit(database, "until", payload={"file": str(later)})
    in_thread = await submit(database, "until_in_thread", payload={"file": str(later)})
    ids = [task.id for task in (ended, on_loop, in_thread)]
    for task_id in ids:
        await noted(journal, f"begin {task_id} 1")
    other = start_worker(fleet, lease)
    await ready(database, other)
    now.touch()

    async def is_frozen() -> bool:
        return is_stopped(sleeper.pid)

    await eventually(is_frozen)
    frozen_at = time.monotonic()
    for task_id in ids:
        await noted(journal, f"begin {task_id} 2", within_seconds=lease + lease / 5 + 1.0 + SLACK)
    await all_in(database, [ended.id], within_seconds=SLACK)
    await asyncio.sleep(max(0.0, frozen_at + 3 * lease - time.monotonic()))  # the fault takes this long
    before = await rows_of(database, ids)
    sleeper.send_signal(signal.SIGCONT)
    await noted(journal, f"cancelled {on_loop.id} 1", within_seconds=lease / 3 + 1.0)
    await noted(journal, f"told {in_thread.id} 1", within_seconds=lease / 3 + 1.0)

    async def has_given_up() -> bool:
        facts = fleet.facts_of(sleeper, "lease_lost")
        return set(ids) == {fact["task_id"] for fact in facts if fact["reason"] == "finish"}

    await eventually(has_given_up)
    after = await rows_of(database, ids)
    for task_id in ids:
        assert after[task_id]["version"] == before[task_id]["version"]
        assert after[task_id]["lease_id"] == before[task_id]["lease_id"]
    assert [after[task_id]["status"] for task_id in ids] == ["succeeded", "running", "running"]
    later.touch()
    rows = await all_in(database, ids, within_seconds=SLACK)
    assert {row["attempt"] for row in rows.values()} == {2}
    stories = await check_everything(database, broker.url)
    for task_id in ids:
        assert [event["kind"].rpartition(".")[2] for event in stories[task_id]] == [
            "queued", "claimed", "lease_expired", "claimed", "completed",
        ]  # fmt: skip
        assert stories[task_id][-1]["attempt"] == 2
    assert sleeper.poll() is None, "it lost its leases, it need not die"


async def one_at_work(
    fleet: Fleet, database: Database, journal: Journal
) -> tuple[subprocess.Popen[bytes], Submitted, int]:
    """Start a worker on a task that outlasts its lease; returns it with the task and its heartbeat's id."""
    fleet.start("server", **environment(LONG_LEASE))
    worker = fleet.start("worker", "start", "tests.support.pools:pool", **environment(LONG_LEASE))
    await ready(database, worker)
    task = await submit(database, "effect", payload={"seconds": LONGER_THAN_A_LEASE})
    await noted(journal, f"begin {task.id} 1")
    (heartbeat,) = children_of(worker.pid)
    return worker, task, heartbeat


async def test_heartbeat_killed(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal
) -> None:
    """A heartbeat that dies is started again, the lease is kept; it dies with its worker."""
    worker, task, first = await one_at_work(fleet, database, journal)
    os.kill(first, signal.SIGKILL)

    async def other_heartbeat() -> int | None:
        return next((pid for pid in children_of(worker.pid) if pid != first), None)

    second = await eventually(other_heartbeat)
    assert second is not None
    rows = await all_in(database, [task.id], within_seconds=LONGER_THAN_A_LEASE + 2 * SLACK)
    assert rows[task.id]["attempt"] == 1
    await check_everything(database, broker.url)
    assert children_of(worker.pid) == [second]
    worker.kill()
    worker.wait()

    async def is_gone() -> bool:
        return not is_alive(second)

    await eventually(is_gone, within_seconds=2.0)


async def test_heartbeat_stuck(fleet: Fleet, database: Database, broker: LocalNats, journal: Journal) -> None:
    """A heartbeat that is there and keeps nothing is replaced before what it should have kept is lost."""
    worker, task, first = await one_at_work(fleet, database, journal)
    os.kill(first, signal.SIGSTOP)
    rows = await all_in(database, [task.id], within_seconds=LONGER_THAN_A_LEASE + 2 * SLACK)
    assert rows[task.id]["attempt"] == 1
    assert len(fleet.facts_of(worker, "heartbeat_stalled")) == 1
    assert first not in children_of(worker.pid)
    await check_everything(database, broker.url)
