"""The whole way: submitted, claimed, run, finished, and every event relayed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from tests.bench.figure import COUNT, MICROSECONDS, TASKS, Figures
from tests.bench.ground import Ground
from tests.bench.pace import Pace, read_pace
from tests.bench.size import Sizes
from tests.bench.stage import PayloadOf, Stage, usual_payload

LINES = 16
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
    """Measure one round, with one worker and one process of all daemons: each event a message, then 16."""
    for name, events in (("whole_way", 1), ("whole_way_lines", LINES)):
        async with ground.stage() as stage:
            await begin(stage, sizes.warm, GRNS_RELAY_EVENTS_PER_MESSAGE=str(events))
            passage = await passed(stage, sizes.rows)
        figures.note(f"{name}.rate", passage.rate, TASKS)
        figures.note(f"{name}.finished", passage.finished_rate, TASKS)
        figures.note(f"{name}.batch", passage.pace.batch, COUNT)
        figures.note(f"{name}.finish_batch", passage.pace.finish_batch, COUNT)
        figures.trace(name, passage.pace.curve(_STEP_SECONDS))
        note_cpu(figures, name, passage.cpu_seconds, sizes.rows)


def note_cpu(figures: Figures, name: str, cpu_seconds: Mapping[str, float], tasks: int) -> None:
    """Note the CPU time of each role for a task, and of all together."""
    for role, seconds in {**cpu_seconds, "all": sum(cpu_seconds.values())}.items():
        figures.note(f"{name}.cpu.{role}", seconds / tasks * _MICROSECONDS, MICROSECONDS)


async def begin(stage: Stage, warm: int, **environment: str) -> None:
    """Start the processes, and let some tasks pass."""
    stage.start("server", **environment)
    await stage.start_worker()
    await stage.pass_through(warm)


async def passed(stage: Stage, rows: int, payload_of: PayloadOf = usual_payload) -> Passage:
    """Submit tasks, and measure until the broker has stored the last event.

    Its time is the broker's: the relay's cursor, which says that nothing is missing, is persisted only
    about once a second.
    """
    mark, before = await stage.last_seq(), stage.usage()
    began = time.time()
    await stage.pass_through(rows, payload_of)
    after = stage.usage()
    _, stored_at = await stage.stored("GRNS_EVT")
    pace = await read_pace(stage.connection, mark)
    return Passage(
        rate=rows / (stored_at - began),
        finished_rate=rows / (pace.finishes[-1] - began),
        pace=pace,
        cpu_seconds={role: used.cpu_seconds - before[role].cpu_seconds for role, used in after.items()},
    )
