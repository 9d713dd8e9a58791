"""Workers that one command runs side by side live and end together."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from grns.dev.servers.port import HOST, free_port
from grns.postgres.database import Database
from tests.support.harness import Fleet, children_of, eventually, is_alive, lines_with, submit, submit_many
from tests.support.store import fetch

pytestmark = pytest.mark.timeout(120)

PROCESSES = 3
Family = tuple[subprocess.Popen[bytes], list[int], list[int]]


async def start(fleet: Fleet, **environment: str) -> Family:
    """Start workers side by side; return their parent, them, and all that has to end with them."""
    parent = fleet.start(
        "worker", "start", "tests.support.pools:pool", "--processes", str(PROCESSES), **environment
    )

    async def work() -> Family | None:
        assert parent.poll() is None, fleet.log_of(parent)
        workers = children_of(parent.pid)
        heartbeats = [heartbeat for worker in workers for heartbeat in children_of(worker)]
        begun = [fact for fact in fleet.facts_of(parent, "service_started") if fact["service"] == "worker"]
        is_whole = len(workers) == len(heartbeats) == len(begun) == PROCESSES
        return (parent, workers, [*workers, *heartbeats]) if is_whole else None

    family = await eventually(work, within_seconds=60)
    assert family is not None
    return family


async def all_end(family: Family) -> int:
    """Wait until the whole family is gone, and return the code of the parent."""
    parent, _, others = family

    async def are_gone() -> bool:
        return parent.poll() is not None and not any(is_alive(pid) for pid in others)

    await eventually(are_gone, within_seconds=30)
    return parent.returncode


@pytest.mark.parametrize("place", [0, PROCESSES - 1])
async def test_with_one_that_dies_all_end(fleet: Fleet, place: int) -> None:
    family = await start(fleet)
    os.kill(family[1][place], signal.SIGKILL)
    assert await all_end(family) == signal.SIGKILL


async def test_one_that_does_not_hear_is_killed(
    fleet: Fleet, database: Database, journal: Callable[[], list[str]]
) -> None:
    """Its loop is blocked when they are asked to end: nobody starts them anew while it is there."""
    family = await start(fleet, GRNS_SHUTDOWN_GRACE_SECONDS="1")
    await submit(database, "block_loop", payload={"how": "sleep_on", "seconds": 100.0})
    (blocked,) = await begun(database, journal, 1)
    os.kill(next(pid for pid in family[1] if pid != blocked), signal.SIGKILL)
    assert await all_end(family) == signal.SIGKILL


async def test_who_ends_because_of_another_keeps_its_grace(
    fleet: Fleet, database: Database, journal: Callable[[], list[str]], tmp_path: Path
) -> None:
    """The request from outside is the first for the parent, and must not be the second for them."""
    family = await start(fleet, GRNS_CONCURRENCY="1", GRNS_SHUTDOWN_GRACE_SECONDS="30")
    file = tmp_path / "file"
    await submit_many(database, PROCESSES, task_type="until", payload={"file": str(file)})
    await begun(database, journal, PROCESSES)
    os.kill(family[1][0], signal.SIGKILL)

    async def are_ending() -> bool:
        return len(fleet.facts_of(family[0], "worker_stopping")) == PROCESSES - 1

    await eventually(are_ending)
    await asyncio.sleep(0.6)  # what comes sooner counts as the same request
    os.kill(family[0].pid, signal.SIGTERM)
    await asyncio.sleep(0.5)
    assert all(is_alive(pid) for pid in family[1][1:])
    file.touch()
    assert await all_end(family) == signal.SIGKILL
    assert len(lines_with(journal(), "end")) == PROCESSES - 1


async def begun(database: Database, journal: Callable[[], list[str]], count: int) -> list[int]:
    """Wait until so many tasks have begun, and return the ids of the processes that run them."""

    async def look() -> bool:
        return len(lines_with(journal(), "begin")) == count

    await eventually(look)
    rows = await fetch(
        database, "select a.pid from grns.tasks t join grns.workers a on a.agent_id = t.owner_agent_id"
    )
    return [row["pid"] for row in rows]


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGHUP, 0), (signal.SIGKILL, -signal.SIGKILL)],
)
async def test_with_their_parent_all_end(fleet: Fleet, number: signal.Signals, code: int) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what is ignored here stays so in what is started
    try:
        family = await start(fleet)
    finally:
        signal.signal(signal.SIGHUP, before)
    os.kill(family[0].pid, number)
    assert await all_end(family) == code
    assert len(fleet.facts_of(family[0], "worker_stopping")) == PROCESSES, "each was asked to end"


async def test_each_has_a_metrics_port_of_its_own(fleet: Fleet) -> None:
    port = free_port()
    family = await start(fleet, GRNS_METRICS_PORT=str(port))
    for place in range(PROCESSES):
        socket.create_connection((HOST, port + place)).close()
    os.kill(family[0].pid, signal.SIGTERM)
    assert await all_end(family) == 0
