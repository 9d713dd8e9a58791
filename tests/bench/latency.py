"""Latency on an idle system: from before the submit to the handler's start, and to the finish."""

from __future__ import annotations

import asyncio
import random
import time

from tests.bench.figure import MILLISECONDS, Curve, Figures
from tests.bench.ground import Ground
from tests.bench.size import Sizes
from tests.bench.stage import Stage
from tests.support.harness import eventually, quantile

_PAUSE_SECONDS = (0.02, 0.04)
_LOOK_SECONDS = 0.0005
_LOOKED_AT = 5  # one of so many is watched until it can be seen
_POINTS = 200
_TIMES = """
    select id, result::text::float8 as started_at, extract(epoch from finished_at)::float8 as finished_at
    from grns.tasks where id = any($1)
"""
# How many commits stand between a submit and what is measured.
_COMMITS = {"start": 2, "visible": 3}
_IS_FINISHED = "select finished_at is not null from grns.tasks where id = $1"


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Submit one task after the other, each once the one before has long ended.

    All clocks are this machine's. `finished_at` is when the statement that finished the task began; its
    commit is durable about one fsync later, which `latency.visible` includes: another connection sees
    the finish, looking every millisecond or so. Between two tasks a bare commit is timed, on a connection
    that is as idle as the others: what a time has over its commits is what grns does.
    """
    commits: list[float] = []
    async with ground.stage() as stage:
        stage.start("server")
        await stage.start_worker()
        await submit_all(stage, sizes.samples // 10, [])
        began = await submit_all(stage, sizes.samples, commits)
        visible = await _watch_all(stage, sizes.samples // _LOOKED_AT)
        rows = await stage.connection.fetch(_TIMES, list(began))
    _note(figures, "start", [row["started_at"] - began[row["id"]] for row in rows])
    _note(figures, "finish", [row["finished_at"] - began[row["id"]] for row in rows])
    _note(figures, "visible", visible)
    _note(figures, "commit", commits)
    commit = 1000 * quantile(commits, 0.50)
    for name, count in _COMMITS.items():
        for place in ("p50", "p99"):
            over = figures.by_name[f"latency.{name}.{place}"].samples[-1] - count * commit
            figures.note(f"latency.{name}.{place}_over_commits", over, MILLISECONDS)


async def submit_all(stage: Stage, count: int, commits: list[float]) -> dict[str, float]:
    """Submit tasks and wait for their end; returns when each submit began, by id. Time commits between."""
    mark = await stage.last_seq()
    began: dict[str, float] = {}
    for _ in range(count):
        now = time.time()
        began[(await stage.client.submit("clock", pool="worker")).id] = now
        await asyncio.sleep(random.uniform(*_PAUSE_SECONDS))
        commits.append(await stage.bare_commit())
        await asyncio.sleep(random.uniform(*_PAUSE_SECONDS))
    await stage.finished(count, after_seq=mark, messages=3 * count)
    return began


async def _watch_all(stage: Stage, count: int) -> list[float]:
    """Submit tasks, and return the seconds until each was seen to be finished."""
    seconds = []
    for _ in range(count):
        seconds.append(await _watch(stage))
        await asyncio.sleep(random.uniform(*_PAUSE_SECONDS))
    return seconds


async def _watch(stage: Stage) -> float:
    began = time.time()
    submitted = await stage.client.submit("clock", pool="worker")
    await eventually(lambda: stage.connection.fetchval(_IS_FINISHED, submitted.id), every=_LOOK_SECONDS)
    return time.time() - began


def _note(figures: Figures, name: str, seconds: list[float]) -> None:
    times = [1000 * one for one in seconds]
    figures.note(f"latency.{name}.p50", quantile(times, 0.50), MILLISECONDS)
    figures.note(f"latency.{name}.p99", quantile(times, 0.99), MILLISECONDS)
    figures.trace(f"latency.{name}", distribution(times))


def distribution(times: list[float]) -> Curve:
    """Return which share of times is not longer than each of some, as points (time, share)."""
    return [(quantile(times, place / _POINTS), place / _POINTS) for place in range(_POINTS + 1)]
