"""An old snapshot, held open by a stranger throughout: nothing that was updated can be vacuumed.

Tasks are submitted as fast as they are run, so that the last tenth has the same mixture of submits, first
attempts and retries as the first one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

from tests.bench.figure import SHARE, TASKS, Figures
from tests.bench.ground import Ground
from tests.bench.pace import Pace, read_pace
from tests.bench.size import Sizes
from tests.bench.stage import PAYLOAD, Stage
from tests.bench.whole_way import begin

# What fails once comes again behind all that is queued: before that the mixture is another one.
FIRST, LAST = (0.15, 0.25), (0.90, 1.0)
_SUBMIT_MESSAGES = 2
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


PLAIN = Kind("snapshot", "noop", 4)
# One that fails has four rows more: retry_scheduled, queued with its command, and another claim.
RETRIES = Kind("snapshot_retries", "flaky", 4 + 4 / _FAILS_EVERY)


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Measure one round, without and with retries: the rate of the last tenth against that of the first."""
    for kind in (PLAIN, RETRIES):
        async with ground.stage() as stage:
            await begin(stage, sizes.warm)
            mark = await stage.last_seq()
            async with _snapshot(ground.url_of(stage.name)):
                await _feed(stage, kind, sizes.snapshot_tasks)
            pace = await read_pace(stage.connection, mark)
        _note(figures, kind, Pace(pace.began, pace.finishes[: sizes.snapshot_tasks]))


def _note(figures: Figures, kind: Kind, pace: Pace) -> None:
    first, last = pace.rate_between(*FIRST), pace.rate_between(*LAST)
    figures.note(f"{kind.name}.first", first, TASKS)
    figures.note(f"{kind.name}.last", last, TASKS)
    figures.note(f"{kind.name}.kept", last / first, SHARE)
    figures.trace(kind.name, pace.curve(_STEP_SECONDS))


@asynccontextmanager
async def _snapshot(url: str) -> AsyncIterator[None]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetchval("select count(*) from grns.relay_cursor")  # it is taken here
            yield
    finally:
        await connection.close()


async def _feed(stage: Stage, kind: Kind, count: int) -> None:
    """Keep some tasks queued until `count` have been finished, and a little longer: an end is not steady."""
    depth = max(count // _DEPTH, 2)
    mark, submitted, done = await stage.last_seq(), 0, 0.0
    while done < count + depth / 2:
        if submitted - done < depth:
            await stage.submit(depth // 2, kind.task_type, kind.payload)
            submitted += depth // 2
        else:
            await asyncio.sleep(_PAUSE_SECONDS)
        done = estimate(await stage.last_seq() - mark, submitted, kind)
    await stage.finished(count, after_seq=mark, messages=0)


def estimate(messages: int, submitted: int, kind: Kind) -> float:
    """Return about how many tasks have been run, by the rows of the log: to count them would disturb them."""
    return (messages - _SUBMIT_MESSAGES * submitted) / (kind.messages - _SUBMIT_MESSAGES)
