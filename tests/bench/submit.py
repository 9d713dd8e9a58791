"""Submitting, in bulk and one by one, while nothing else runs."""

from __future__ import annotations

import time

from tests.bench.figure import TASKS, Figures
from tests.bench.ground import Ground
from tests.bench.size import Sizes
from tests.bench.stage import PAYLOAD


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Measure one round; one by one, each is awaited before the next."""
    async with ground.stage() as stage:
        await stage.submit(sizes.warm)
        began = time.perf_counter()
        await stage.submit(sizes.rows)
        figures.note("submit.bulk", sizes.rows / (time.perf_counter() - began), TASKS)
        began = time.perf_counter()
        for _ in range(sizes.singles):
            await stage.client.submit("noop", PAYLOAD)
        figures.note("submit.single", sizes.singles / (time.perf_counter() - began), TASKS)
