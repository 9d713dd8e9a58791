"""Agents over HTTP as processes: killed, blocked, and left without the API for a while."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import grns
from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.process.test_api import url_of
from tests.support.agents import LEASE_SECONDS
from tests.support.harness import (
    ROOT,
    START_SECONDS,
    Fleet,
    all_in,
    check_everything,
    eventually,
    root_key,
    submit,
    submit_many,
)

pytestmark = pytest.mark.timeout(180)


class Agents:
    """Processes of agents; none of them outlives its test, nor has any server's URL but the API's."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, url: str, key: str) -> Path:
        """Start one; returns the file of what it does."""
        log = self._directory / f"agent-{len(self.processes)}.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GRNS_")}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.agents", url],
                env=environment | {"PYTHONPATH": str(ROOT), "AGENT_KEY": key},
                cwd=self._directory,
                stdout=output,
                stderr=output,
            )
        self.processes.append(process)
        return log

    def end(self) -> None:
        """End all of them."""
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    """Agents."""
    found = Agents(tmp_path)
    yield found
    found.end()


async def has_begun(log: Path, task_id: str) -> bool:
    """Tell whether an agent has begun with a task."""
    return task_id in await asyncio.to_thread(log.read_text)


async def test_what_an_agent_had_that_was_killed_another_one_does(
    fleet: Fleet, agents: Agents, database: Database, broker: LocalNats
) -> None:
    server = fleet.start("server", "--api", GRNS_API_PORT="0", GRNS_REAPER_INTERVAL_SECONDS="0.2")
    url = await url_of(fleet, server)
    key = await root_key(database)
    log = agents.start(url, key)
    await all_in(database, await submit_many(database, 3), within_seconds=START_SECONDS)
    slow = (await submit(database, "slow", payload={"seconds": 3600})).id
    await eventually(lambda: has_begun(log, slow))
    agents.processes[0].send_signal(signal.SIGKILL)
    killed_at = time.monotonic()
    async with grns.AgentClient(url, key=key, task_types=["slow"]) as client:
        task = await client.next_task(30)
        assert task is not None
        assert (task.id, task.attempt) == (slow, 2)
        assert (
            time.monotonic() - killed_at < LEASE_SECONDS + 0.2 + 1.0 + 2.0
        )  # the last is for a busy machine
        await client.complete_task(task)
    await all_in(database, [slow], within_seconds=10)
    await check_everything(database, broker.url)


async def test_an_agent_that_blocks_its_loop_keeps_its_task(
    fleet: Fleet, database: Database, broker: LocalNats
) -> None:
    server = fleet.start("server", "--api", GRNS_API_PORT="0", GRNS_REAPER_INTERVAL_SECONDS="0.2")
    url, key = await url_of(fleet, server), await root_key(database)
    task_id = (await submit(database)).id
    async with (
        grns.AgentClient(url, key=key, task_types=["noop"], lease_seconds=LEASE_SECONDS) as client,
        asyncio.timeout(60),
    ):
        task = await client.next_task(30)
        assert task is not None
        async with task:
            time.sleep(3 * LEASE_SECONDS)  # noqa: ASYNC251 - this is what the test is about
    assert (task.id, task.status) == (task_id, "succeeded")
    rows = await all_in(database, [task_id], within_seconds=10)
    assert rows[task_id]["attempt"] == 1


async def test_what_is_done_while_the_api_is_away_is_written_when_it_is_back(
    fleet: Fleet, database: Database, broker: LocalNats
) -> None:
    first = fleet.start("daemon", "api", "--port", "0")
    url, key = await url_of(fleet, first), await root_key(database)
    task_id = (await submit(database)).id
    agent = grns.AgentClient(url, key=key, task_types=["noop"], lease_seconds=60)
    async with agent as client, asyncio.timeout(120):
        task = await client.next_task(30)
        assert task is not None
        first.send_signal(signal.SIGKILL)
        await asyncio.to_thread(first.wait)
        ending = asyncio.create_task(_do(task))
        second = fleet.start("daemon", "api", "--port", url.rpartition(":")[2])
        assert await url_of(fleet, second) == url
        await ending
    assert task.status == "succeeded"
    await all_in(database, [task_id], within_seconds=10)


async def _do(task: grns.AgentTask) -> None:
    async with task:
        task.result = "done"
