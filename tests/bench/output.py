"""Streamed output: how long a chunk takes from its handler to a reader over HTTP, while tasks are run."""

from __future__ import annotations

import asyncio
import json
import time

import httpx2

from grns.access.keys import create_key
from tests.bench.figure import COUNT, MILLISECONDS, SHARE, Figures
from tests.bench.ground import Ground
from tests.bench.size import Sizes
from tests.bench.stage import SLOTS, Stage
from tests.process.test_api import url_of
from tests.support.harness import quantile

STREAMS = 200
CHUNKS_PER_SECOND = 20
_SECONDS = 20.0
_BESIDE_PER_SECOND = 200
_LIMIT_SECONDS = 120.0


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Have tasks stream the time, and take it where it arrives; a chunk waits for its sending, too.

    Each task has one reader. Beside them tasks are submitted and run, a steady number each second.
    """
    streams = max(STREAMS * sizes.rows // 20_000, 10)
    async with ground.stage() as stage:
        stage.start("server", "--api", GRNS_API_PORT="0", GRNS_LOG_LEVEL="info")  # its URL
        await stage.start_worker(streams + SLOTS)
        url = await url_of(stage._fleet, stage._processes["server"])
        key, _ = await create_key(
            stage.database, workspace=None, name="bench", scopes=["read"], actor="cli:bench"
        )
        payload = {"chunks": int(_SECONDS * CHUNKS_PER_SECOND), "pause": 1 / CHUNKS_PER_SECOND}
        made = await stage.client.submit_many(
            {"task": "teller", "payload": payload, "pool": "worker"} for _ in range(streams)
        )
        ids = [getattr(one, "id", "") for one in made]
        before = _cpu_seconds(stage)
        beside = asyncio.create_task(_submit_beside(stage))
        limits = httpx2.Limits(max_connections=None)
        headers = {"Authorization": f"Bearer {key.reveal()}"}
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60, limits=limits) as client:
            read = await asyncio.gather(*(_follow(client, task_id) for task_id in ids))
        took = [seconds for one in read for seconds in one]
        beside.cancel()
        figures.note("output.chunks", len(took) / streams, COUNT)
        figures.note("output.p50", 1000 * quantile(took, 0.50), MILLISECONDS)
        figures.note("output.p95", 1000 * quantile(took, 0.95), MILLISECONDS)
        figures.note("output.p99", 1000 * quantile(took, 0.99), MILLISECONDS)
        figures.note("output.cpu", (_cpu_seconds(stage) - before) / _SECONDS, SHARE)


async def _submit_beside(stage: Stage) -> None:
    while True:
        await stage.submit(_BESIDE_PER_SECOND // 10)
        await asyncio.sleep(0.1)


async def _follow(client: httpx2.AsyncClient, task_id: str) -> list[float]:
    """Return how many seconds each word took, from its handler to here."""
    took: list[float] = []
    async with (
        asyncio.timeout(_LIMIT_SECONDS),
        client.stream("GET", f"/api/v1/tasks/{task_id}/stream") as answer,
    ):
        async for line in answer.aiter_lines():
            if not line.startswith("data: "):
                continue
            said = json.loads(line.removeprefix("data: "))
            now = time.time()
            if "kind" in said:
                took += [now - float(word) for word in said["data"].split()]
            elif said.get("status") in ("succeeded", "dead", "failed"):
                break
    return took


def _cpu_seconds(stage: Stage) -> float:
    return sum(used.cpu_seconds for role, used in stage.usage().items() if role != "client")
