"""Draining: tasks that are queued, their commands in the broker, and a worker that starts; no relay runs."""

from __future__ import annotations

from tests.bench.figure import COUNT, TASKS, Figures
from tests.bench.ground import Ground
from tests.bench.pace import read_pace
from tests.bench.size import Sizes
from tests.bench.stage import Stage
from tests.bench.whole_way import note_cpu

PROCESSES = (1, 2, 4)
# Processes start one after the other: of several, this part of the tasks counts.
_STEADY = (0.5, 0.95)


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Measure one round, from the first claim to the last finish: the worker's start does not count."""
    for processes in PROCESSES:
        name = "drain" if processes == 1 else f"drain_{processes}"
        tasks = sizes.rows * processes
        async with ground.stage() as stage:
            started = await _start_cost(stage, processes)
            await stage.queue(tasks)
            mark, before = await stage.last_seq(), stage.usage()
            await stage.start_worker(processes=processes)
            await stage.finished(tasks, after_seq=mark, messages=2 * tasks)
            after, pace = stage.usage(), await read_pace(stage.connection, mark)
        figures.note(f"{name}.rate", pace.rate() if processes == 1 else pace.rate_between(*_STEADY), TASKS)
        figures.note(f"{name}.batch", pace.batch, COUNT)
        figures.note(f"{name}.finish_batch", pace.finish_batch, COUNT)
        used = {role: after[role].cpu_seconds - usage.cpu_seconds for role, usage in before.items()}
        note_cpu(figures, name, used | {"worker": after["worker"].cpu_seconds - started}, tasks)


async def _start_cost(stage: Stage, processes: int) -> float:
    """Return the CPU seconds that a worker takes to start, by starting one that has nothing to do."""
    await stage.start_worker(processes=processes)
    seconds = stage.usage()["worker"].cpu_seconds
    await stage.end("worker")
    return seconds
