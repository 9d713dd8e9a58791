"""From Postgres alone: the same tasks while the broker is away all the time."""

from __future__ import annotations

import asyncio
import time

from tests.bench.figure import TASKS, Figures
from tests.bench.ground import Ground
from tests.bench.pace import read_pace
from tests.bench.size import Sizes
from tests.bench.whole_way import begin


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Measure one round: from the first submit to the last finish."""
    async with ground.stage() as stage:
        await begin(stage, sizes.warm)
        mark = await stage.last_seq()
        await asyncio.to_thread(stage.broker.kill)
        began = time.time()
        await stage.submit(sizes.rows)
        await stage.finished(sizes.rows, after_seq=mark, messages=3 * sizes.rows)
        pace = await read_pace(stage.connection, mark)
        # Processes end sooner where they need not look for their broker.
        await asyncio.to_thread(stage.broker.start)
    figures.note("floor.rate", sizes.rows / (pace.finishes[-1] - began), TASKS)
