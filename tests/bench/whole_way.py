"""The whole way: submitted, claimed, run, finished, and every event relayed."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.bench.figure import MICROSECONDS, TASKS, Figures
from tests.bench.ground import Ground
from tests.bench.pace import Pace, read_pace
from tests.bench.size import Sizes
from tests.bench.stage import Stage

_STEP_SECONDS = 0.1
_MICROSECONDS = 1e6


@dataclass(frozen=True)
class Passage:
    """How tasks went the whole way: tasks/s, and the CPU seconds that each role took for all of them."""

    rate: float
    finished_rate: float
    pace: Pace
    cpu_seconds: dict[str, float]


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Measure one round, with one worker and one process of all daemons."""
    async with ground.stage() as stage:
        await begin(stage, sizes.warm)
        passage = await passed(stage, sizes.rows)
    figures.note("whole_way.rate", passage.rate, TASKS)
    figures.note("whole_way.finished", passage.finished_rate, TASKS)
    figures.trace("whole_way", passage.pace.curve(_STEP_SECONDS))
    for role, seconds in passage.cpu_seconds.items():
        figures.note(f"whole_way.cpu.{role}", seconds / sizes.rows * _MICROSECONDS, MICROSECONDS)


async def begin(stage: Stage, warm: int) -> None:
    """Start the processes, and let some tasks pass."""
    stage.start("server")
    await stage.start_worker()
    await stage.pass_through(warm)


async def passed(stage: Stage, rows: int) -> Passage:
    """Submit tasks, and measure until the broker has stored the last event.

    Its time is the broker's: the relay's cursor, which says that nothing is missing, is persisted only
    about once a second.
    """
    mark, before = await stage.last_seq(), stage.usage()
    began = time.time()
    await stage.pass_through(rows)
    after = stage.usage()
    _, stored_at = await stage.stored("GRNS_EVT")
    pace = await read_pace(stage.connection, mark)
    return Passage(
        rate=rows / (stored_at - began),
        finished_rate=rows / (pace.finishes[-1] - began),
        pace=pace,
        cpu_seconds={role: used.cpu_seconds - before[role].cpu_seconds for role, used in after.items()},
    )
