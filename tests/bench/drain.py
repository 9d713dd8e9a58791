"""Draining: tasks that are queued, their commands in the broker, and a worker that starts; no relay runs."""

from __future__ import annotations

from tests.bench.figure import TASKS, Figures
from tests.bench.ground import Ground
from tests.bench.pace import read_pace
from tests.bench.size import Sizes


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Measure one round, from the first claim to the last finish: the worker's start does not count."""
    async with ground.stage() as stage:
        await stage.queue(sizes.rows)
        mark = await stage.last_seq()
        await stage.start_worker()
        await stage.finished(sizes.rows, after_seq=mark, messages=2 * sizes.rows)
        figures.note("drain.rate", (await read_pace(stage.connection, mark)).rate(), TASKS)
