"""Submitting, in bulk, one by one, and by many at a time, while nothing else runs."""

from __future__ import annotations

import asyncio
import time

from tests.bench.figure import MILLISECONDS, TASKS, Figures
from tests.bench.ground import Ground
from tests.bench.size import Sizes
from tests.bench.stage import PAYLOAD

_SUBMITTERS = 32


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Measure one round; one by one, each is awaited before the next, and a bare commit is timed after it."""
    async with ground.stage() as stage:
        await stage.submit(sizes.warm)
        began = time.perf_counter()
        await stage.submit(sizes.rows)
        figures.note("submit.bulk", sizes.rows / (time.perf_counter() - began), TASKS)
        singles = commits = 0.0
        for _ in range(sizes.singles):  # in turn, so that both meet the same disk
            began = time.perf_counter()
            await stage.client.submit("noop", PAYLOAD, pool="worker")
            singles += time.perf_counter() - began
            commits += await stage.bare_commit()
        figures.note("submit.single", sizes.singles / singles, TASKS)
        figures.note("submit.commit", 1000 * commits / sizes.singles, MILLISECONDS)
        figures.note("submit.over_commit", 1000 * (singles - commits) / sizes.singles, MILLISECONDS)
        each = sizes.rows // _SUBMITTERS

        async def submit_some() -> None:
            for _ in range(each):
                await stage.client.submit("noop", PAYLOAD, pool="worker")

        began = time.perf_counter()
        await asyncio.gather(*(submit_some() for _ in range(_SUBMITTERS)))
        figures.note("submit.concurrent", each * _SUBMITTERS / (time.perf_counter() - began), TASKS)
