"""Durable steps: what one costs over a commit, and what tasks cost that sleep."""

from __future__ import annotations

import asyncio

from tests.bench.figure import MILLISECONDS, SHARE, Figures
from tests.bench.ground import Ground
from tests.bench.size import Sizes
from tests.bench.stage import Stage
from tests.support.harness import quantile

_LIMIT_SECONDS = 300
_SETTLE_SECONDS = 5.0
_ASLEEP = "select count(*) from grns.tasks where status = 'waiting'"


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Take steps one after the other on an idle system; then let many tasks sleep, and watch what that costs.

    A step is from its call in the handler to its value. What sleeping tasks cost is the CPU of all processes
    and servers, without what they took before.
    """
    async with ground.stage() as stage:
        stage.start("server")
        await stage.start_worker()
        handle = await stage.client.submit("steps", {"steps": sizes.samples}, pool="worker")
        seconds = await handle.result(timeout=_LIMIT_SECONDS)
        commits = [await stage.bare_commit() for _ in range(sizes.samples)]
        over = quantile(seconds, 0.50) - quantile(commits, 0.50)
        figures.note("step.p50", 1000 * quantile(seconds, 0.50), MILLISECONDS)
        figures.note("step.over_commit", 1000 * over, MILLISECONDS)
        idle = await _cpu_share(stage, sizes.window_seconds)
        await stage.client.submit_many(
            {"task": "sleeper", "payload": {}, "pool": "worker"} for _ in range(sizes.children)
        )

        async def are_asleep() -> bool:
            return int(await stage.connection.fetchval(_ASLEEP)) == sizes.children

        await stage.until(are_asleep)
        await asyncio.sleep(_SETTLE_SECONDS)
        asleep = await _cpu_share(stage, sizes.window_seconds)
        figures.note("asleep.cpu", max(0.0, asleep - idle), SHARE)
        after = await stage.client.submit("noop", {}, pool="worker")
        await after.result(timeout=_LIMIT_SECONDS)


async def _cpu_share(stage: Stage, seconds: float) -> float:
    """Return the share of a core that all take, but the process that measures."""
    before = _cpu_seconds(stage)
    await asyncio.sleep(seconds)
    return (_cpu_seconds(stage) - before) / seconds


def _cpu_seconds(stage: Stage) -> float:
    return sum(used.cpu_seconds for role, used in stage.usage().items() if role != "client")
