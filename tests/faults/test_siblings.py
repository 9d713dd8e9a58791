"""Workers that one command runs side by side live and end together."""

from __future__ import annotations

import os
import signal
import socket
import subprocess

import pytest

from grns.local.port import HOST, free_port
from tests.harness import Fleet, eventually, is_alive, keepers_of

pytestmark = pytest.mark.timeout(120)

PROCESSES = 3
Family = tuple[subprocess.Popen[bytes], list[int], list[int]]


async def start(fleet: Fleet, **environment: str) -> Family:
    """Start workers side by side; return their parent, them, and all that has to end with them."""
    parent = fleet.start("worker", "tests.pools:pool", "--processes", str(PROCESSES), **environment)

    async def work() -> Family | None:
        assert parent.poll() is None, fleet.log_of(parent)
        workers = keepers_of(parent.pid)
        keepers = [keeper for worker in workers for keeper in keepers_of(worker)]
        is_whole = len(workers) == len(keepers) == PROCESSES
        return (parent, workers, [*workers, *keepers]) if is_whole else None

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
