"""An old snapshot, held open by another session throughout: nothing that was updated can be vacuumed.

Rates scatter too much to show what that costs. So the CPU time of Postgres for a task is measured, in the
last tenth, with the snapshot and, as a control, without one.

Tasks are submitted as fast as they are run, so that the last tenth has the same mixture of submits, first
attempts and retries as the first one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import asyncpg

from tests.bench.figure import MICROSECONDS, TASKS, TIMES, Figures
from tests.bench.ground import Ground
from tests.bench.pace import Pace, read_pace
from tests.bench.size import Sizes
from tests.bench.stage import PAYLOAD, Stage
from tests.bench.whole_way import begin

# What fails once comes again behind all that is queued: before that the mixture is another one.
FIRST, LAST = (0.15, 0.25), (0.90, 1.0)
_SUBMIT_MESSAGES = 1
_FAILS_EVERY = 5
_FAILING = PAYLOAD | {"fails": True}
_DEPTH = 20  # as a part of all tasks: so much is queued at most
_STEP_SECONDS = 0.5
_PAUSE_SECONDS = 0.02


@dataclass(frozen=True)
class Kind:
    """What is run: how the tasks are, and how many rows of the log one has from its submit to its end."""

    name: str
    task_type: str
    messages: float

    def payload(self, number: int) -> Mapping[str, Any]:
        """Return the payload of one task: every fifth of the flaky ones fails once."""
        return _FAILING if self.task_type == "flaky" and number % _FAILS_EVERY == 0 else PAYLOAD


PLAIN = Kind("snapshot", "noop", 3)
# One that fails has three rows more: retry_scheduled, queued, and another claim.
RETRIES = Kind("snapshot_retries", "flaky", 3 + 3 / _FAILS_EVERY)


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Measure one round, without and with retries, each with a snapshot and without one."""
    for kind in (PLAIN, RETRIES):
        used: dict[bool, float] = {}
        for is_held in (True, False):
            async with ground.stage() as stage:
                await begin(stage, sizes.warm)
                mark = await stage.last_seq()
                async with _snapshot(ground.url_of(stage.name)) if is_held else nullcontext():
                    samples = await _feed(stage, kind, sizes.snapshot_tasks)
                pace = await read_pace(stage.connection, mark)
            name = kind.name if is_held else f"{kind.name}_control"
            for part, (low, high) in (("first", FIRST), ("last", LAST)):
                used[is_held] = cpu_between(samples, low * sizes.snapshot_tasks, high * sizes.snapshot_tasks)
                figures.note(f"{name}.cpu.{part}", used[is_held], MICROSECONDS)
            figures.note(f"{name}.rate", pace.rate(sizes.snapshot_tasks), TASKS)
            figures.trace(name, Pace(pace.began, pace.finishes[: sizes.snapshot_tasks]).curve(_STEP_SECONDS))
        figures.note(f"{kind.name}.cost", used[True] / used[False], TIMES)


def cpu_between(samples: Sequence[tuple[float, float]], low: float, high: float) -> float:
    """Return the microseconds of CPU for a task between two numbers of tasks done.

    `samples` are (tasks done, CPU seconds), in order.
    """
    first = next(sample for sample in samples if sample[0] >= low)
    last = next((sample for sample in samples if sample[0] >= high), samples[-1])
    return 1e6 * (last[1] - first[1]) / max(last[0] - first[0], 1.0)


@asynccontextmanager
async def _snapshot(url: str) -> AsyncIterator[None]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetchval("select count(*) from grns.relay_cursor")  # it is taken here
            yield
    finally:
        await connection.close()


async def _feed(stage: Stage, kind: Kind, count: int) -> list[tuple[float, float]]:
    """Keep some tasks queued until `count` have been finished, and a little longer: an end is not steady.

    Returns how many were done and the CPU seconds of Postgres, again and again.
    """
    depth = max(count // _DEPTH, 2)
    mark, submitted, done = await stage.last_seq(), 0, 0.0
    samples: list[tuple[float, float]] = []
    while done < count + depth / 2:
        if submitted - done < depth:
            await stage.submit(depth // 2, kind.task_type, kind.payload)
            submitted += depth // 2
        else:
            await asyncio.sleep(_PAUSE_SECONDS)
        done = estimate(await stage.last_seq() - mark, submitted, kind)
        samples.append((done, stage.usage()["Postgres"].cpu_seconds))
    await stage.finished(count, after_seq=mark, messages=0)
    return samples


def estimate(messages: int, submitted: int, kind: Kind) -> float:
    """Return about how many tasks have been run, by the rows of the log: to count them would disturb them."""
    return (messages - _SUBMIT_MESSAGES * submitted) / (kind.messages - _SUBMIT_MESSAGES)
