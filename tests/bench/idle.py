"""What processes cost that have nothing to do: each on a database of its own, all at the same time."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from tests.bench.figure import SHARE, STATEMENTS, Figures
from tests.bench.ground import Ground
from tests.bench.size import Sizes
from tests.bench.stage import Stage
from tests.bench.statement import Statements, counting_ground

DAEMONS = ("relay", "reaper", "scheduler", "janitor")
ROLES = ("worker", *DAEMONS)
_LEAST_SETTLE_SECONDS = 5.0


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Watch them for a while, once what they do at their start is over."""
    seconds = sizes.window_seconds
    async with counting_ground(ground.directory / "idle") as (here, statements), AsyncExitStack() as stages:
        places = {role: await stages.enter_async_context(here.stage()) for role in ROLES}
        for role, stage in places.items():
            await _start(stage, role)
        await asyncio.sleep(max(seconds / 2, _LEAST_SETTLE_SECONDS))
        before = {role: await _look(stage, role, statements) for role, stage in places.items()}
        await asyncio.sleep(seconds)
        for role, stage in places.items():
            cpu_seconds, count = await _look(stage, role, statements)
            figures.note(f"idle.{role}.cpu", (cpu_seconds - before[role][0]) / seconds, SHARE)
            figures.note(f"idle.{role}.statements", (count - before[role][1]) / seconds, STATEMENTS)


async def _start(stage: Stage, role: str) -> None:
    if role == "worker":
        await stage.start_worker()
    else:
        stage.start(role)


async def _look(stage: Stage, role: str, statements: Statements) -> tuple[float, int]:
    return stage.usage()[role].cpu_seconds, await statements.count(stage.name)
