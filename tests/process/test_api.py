"""`grns daemon api` as a process: asked by a foreign client, followed, ended, and never open to everybody."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess

import httpx2
import pytest

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.support.harness import START_SECONDS, Fleet, all_in, eventually, ready, shown

pytestmark = pytest.mark.timeout(180)

EVERYWHERE = "0.0.0.0"  # noqa: S104 - every request shows a key


async def url_of(fleet: Fleet, process: subprocess.Popen[bytes]) -> str:
    """Wait until a process serves the API, and return where."""

    async def look() -> str:
        assert process.poll() is None, fleet.log_of(process)
        return next((str(fact["url"]) for fact in fleet.facts_of(process, "api_started")), "")

    return await eventually(look, within_seconds=START_SECONDS)


async def ended(process: subprocess.Popen[bytes]) -> int:
    """Ask a process for its end, and return its exit code."""
    process.send_signal(signal.SIGTERM)
    return await asyncio.to_thread(process.wait, 20)


async def test_a_task_goes_all_its_way_over_http(fleet: Fleet, database: Database, broker: LocalNats) -> None:
    server = fleet.start("server", "--api", GRNS_API_PORT="0")
    worker = fleet.start("worker", "start", "tests.support.pools:pool")
    await ready(database, worker)
    url = await url_of(fleet, server)
    async with httpx2.AsyncClient(base_url=url, timeout=20.0) as visitor:
        visitor.headers.update(await shown(database))
        params = {"kind": "evt.task.completed"}
        accept = {"Accept": "text/event-stream"}
        async with visitor.stream("GET", "/api/v1/events", params=params, headers=accept) as told:
            lines = told.aiter_lines()
            assert await anext(lines) == "retry: 1000"
            made = (await visitor.post("/api/v1/tasks", json={"task_type": "noop"})).json()
            await all_in(database, [made["id"]], within_seconds=30)
            async with asyncio.timeout(30):
                async for line in lines:
                    if line.startswith("data: "):
                        assert json.loads(line.removeprefix("data: "))["task_id"] == made["id"]
                        break
        task = (await visitor.get(f"/api/v1/tasks/{made['id']}")).json()
        assert task["status"] == "succeeded"
        metrics = (await visitor.get("/metrics")).text
        assert 'grns_http_requests_total{operation="create_task",status="201"} 1.0' in metrics
        assert (await visitor.get("/readyz")).status_code == 200
    assert await ended(server) == 0, fleet.log_of(server)


async def test_it_ends_soon_though_somebody_reads_along(fleet: Fleet, database: Database) -> None:
    process = fleet.start("daemon", "api", "--port", "0")
    url = await url_of(fleet, process)
    accept = {"Accept": "text/event-stream", **await shown(database)}
    async with (
        httpx2.AsyncClient(base_url=url, timeout=20.0) as visitor,
        visitor.stream("GET", "/api/v1/events", headers=accept) as told,
    ):
        assert await anext(told.aiter_lines()) == "retry: 1000"
        assert await ended(process) == 0, fleet.log_of(process)


async def test_it_is_never_open_to_everybody(fleet: Fleet, database: Database) -> None:
    """H3: without a key, the process prints a token on stderr that creates the first one."""
    process = fleet.start("daemon", "api", "--host", EVERYWHERE, "--port", "0")
    url = (await url_of(fleet, process)).replace(EVERYWHERE, "127.0.0.1")
    async with httpx2.AsyncClient(base_url=url) as visitor:
        assert (await visitor.get("/api/v1/counts")).status_code == 401
        printed = re.findall(r"http://0\.0\.0\.0:\d+/login\?token=(\S+)", fleet.log_of(process))
        assert len(printed) == 1
        order = {"name": "root", "scopes": ["admin"], "all_workspaces": True}
        bootstrap = {"Authorization": f"Bearer {printed[0]}"}
        key = (await visitor.post("/api/v1/keys", json=order, headers=bootstrap)).json()["key"]
        headers = {"Authorization": f"Bearer {key}"}
        assert (await visitor.get("/api/v1/counts", headers=headers)).status_code == 200
        assert (await visitor.post("/api/v1/keys", json=order, headers=bootstrap)).status_code == 401
    assert key.rpartition("_")[2] not in fleet.log_of(process)
    assert all(printed[0] not in str(fact) for fact in fleet.facts_of(process)), "it is in no line of the log"


async def test_a_port_that_is_taken_is_told(fleet: Fleet, database: Database) -> None:
    first = fleet.start("daemon", "api", "--port", "0")
    port = (await url_of(fleet, first)).rpartition(":")[2]
    second = fleet.start("daemon", "api", "--port", port)
    assert await asyncio.to_thread(second.wait, START_SECONDS) == 5
    assert f"the API cannot be served on 127.0.0.1:{port}" in fleet.log_of(second)
