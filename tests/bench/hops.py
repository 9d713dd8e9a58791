"""Tasks that need others: how soon the next one starts, and how long a fan-out takes, out and back."""

from __future__ import annotations

import asyncio
import random
import time

import grns
from tests.bench.figure import MILLISECONDS, Figures
from tests.bench.ground import Ground
from tests.bench.size import Sizes
from tests.bench.stage import Stage
from tests.support.harness import quantile

_PAUSE_SECONDS = (0.02, 0.04)
_LIMIT_SECONDS = 300
_HOPS = """
    select b.result::text::float8 - extract(epoch from a.finished_at)::float8 as seconds
    from grns.needs e
    join grns.tasks a on a.id = e.needs
    join grns.tasks b on b.id = e.task_id
    where b.task_type = 'clock'
"""


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Submit chains of two tasks on an idle system, then a task that submits many and waits for them.

    A hop is from the beginning of the statement that finishes the first task to the start of the second
    one's handler.
    """
    async with ground.stage() as stage:
        stage.start("server")
        await stage.start_worker()
        await _chains(stage, max(10, sizes.samples // 10))
        await stage.connection.execute("delete from grns.needs")
        await _chains(stage, sizes.samples)
        seconds = [row["seconds"] for row in await stage.connection.fetch(_HOPS)]
        began = time.monotonic()
        parent = await stage.client.submit("fan_out", {"tasks": sizes.children}, pool="worker")
        assert await parent.result(timeout=_LIMIT_SECONDS) == sizes.children
        figures.note("fan_out.time", 1000 * (time.monotonic() - began), MILLISECONDS)
    figures.note("hop.p50", 1000 * quantile(seconds, 0.50), MILLISECONDS)
    figures.note("hop.p99", 1000 * quantile(seconds, 0.99), MILLISECONDS)


async def _chains(stage: Stage, count: int) -> None:
    for _ in range(count):
        flow = stage.client.workflow("hop")
        first = flow.task("clock", pool="worker")
        flow.task("clock", pool="worker", needs=[first])
        run: grns.WorkflowHandle = await flow.submit()
        await run.wait(timeout=_LIMIT_SECONDS)
        await asyncio.sleep(random.uniform(*_PAUSE_SECONDS))
