"""Thousands of tasks that run long, all at once on one worker: what it costs to keep their leases."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from grns.settings import load
from tests.bench.figure import COUNT, MEGABYTES, SHARE, Figures
from tests.bench.ground import Ground
from tests.bench.process import Usage
from tests.bench.size import Sizes
from tests.bench.stage import Stage
from tests.bench.statement import Statements, counting_ground

# The words by which `renew` and `touch_worker`, which comes with each round of renewals, are told.
RENEWAL, ROUND = "renewed as (", "worked_at = now() - "
_LEAST_ROUNDS = 2
_RUNNING = "select count(*) from grns.tasks where status = 'running'"


@dataclass(frozen=True)
class _Look:
    """What all had used until some moment, and how often leases had been renewed."""

    usage: dict[str, Usage]
    renewals: int
    rounds: int


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Watch a worker with its heartbeat process for some rounds of renewals."""
    tick_seconds = load().renew_seconds
    seconds = max(sizes.window_seconds, (_LEAST_ROUNDS + 0.5) * tick_seconds)
    async with counting_ground(ground.directory / "long") as (here, statements), here.stage() as stage:
        await _run_all(stage, sizes.long_tasks)
        await asyncio.sleep(tick_seconds)  # the work of claiming them is over
        before = await _look(stage, statements)
        await asyncio.sleep(seconds)
        after = await _look(stage, statements)
        assert await _count_running(stage) == sizes.long_tasks, "tasks were lost meanwhile"
    if statements.is_exact:
        renewals, rounds = after.renewals - before.renewals, after.rounds - before.rounds
        figures.note("long.renewals", renewals / rounds, COUNT)
    for role in ("worker", "Postgres"):
        cpu_seconds = after.usage[role].cpu_seconds - before.usage[role].cpu_seconds
        figures.note(f"long.cpu.{role}", cpu_seconds / seconds, SHARE)
    figures.note("long.memory", after.usage["worker"].rss_megabytes, MEGABYTES)


async def _run_all(stage: Stage, count: int) -> None:
    """Have so many tasks running; they end with their worker, which does not wait for them."""
    stage.start("server")
    await stage.start_worker(count, GRNS_SHUTDOWN_GRACE_SECONDS="0")
    await stage.submit(count, "long")

    async def are_running() -> bool:
        return await _count_running(stage) == count

    await stage.until(are_running)


async def _count_running(stage: Stage) -> int:
    return int(await stage.connection.fetchval(_RUNNING))


async def _look(stage: Stage, statements: Statements) -> _Look:
    if not statements.is_exact:
        return _Look(stage.usage(), 0, 0)
    renewals, rounds = [await statements.count_with(stage.name, words) for words in (RENEWAL, ROUND)]
    return _Look(stage.usage(), renewals, rounds)
