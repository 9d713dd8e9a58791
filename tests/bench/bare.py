"""The limit: the statements that claim and finish, sent by a bare loop on one connection.

There is no broker, no handler and no process besides: what a worker does more than this is its overhead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grns.model.outcome import Verb
from grns.model.task import random_uuid
from grns.postgres.database import Database, Row
from grns.postgres.statements import statement
from grns.settings import load
from tests.bench.figure import MICROSECONDS, TASKS, Figures
from tests.bench.ground import Ground
from tests.bench.pace import read_pace
from tests.bench.size import Sizes

BATCHES = (50, 100, 200, 500)
_NO_RESULT = "null"


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Measure one round at each batch size; the best of them is what counts."""
    found = {batch: await measured(ground, sizes.rows, batch) for batch in BATCHES}
    for batch, (rate, _) in found.items():
        figures.note(f"bare.{batch}", rate, TASKS)
    rate, cpu = max(found.values())
    figures.note("bare.best", rate, TASKS)
    figures.note("bare.cpu", cpu, MICROSECONDS)


async def measured(ground: Ground, rows: int, batch: int) -> tuple[float, float]:
    """Return tasks/s from the first claim to the last finish, and µs of CPU of it and Postgres a task."""
    async with ground.stage() as stage:
        ids = await stage.submit(rows)
        before = stage.usage()
        await run(stage.database, ids, batch)
        used = [usage.cpu_seconds - before[role].cpu_seconds for role, usage in stage.usage().items()]
        pace = await read_pace(stage.connection)
        assert len(pace.finishes) == rows, "the bare loop has not finished all"
        return pace.rate(), 1e6 * sum(used) / rows


async def run(database: Database, ids: Sequence[str], batch: int) -> None:
    """Claim and finish tasks, so many in each statement, with the arguments that a worker sends."""
    lease_seconds = load().lease_seconds
    async with database.connection() as connection:
        for start in range(0, len(ids), batch):
            wanted = ids[start : start + batch]
            rows = await connection.fetch(statement("claim"), *_claiming(wanted, lease_seconds))
            await connection.fetch(statement("finish"), *_finishing(rows))


def _claiming(ids: Sequence[str], lease_seconds: float) -> tuple[Any, ...]:
    return (
        ids, [random_uuid() for _ in ids], [random_uuid() for _ in ids], "worker-bare", "default", "worker",
        ["noop"], [None], lease_seconds,
    )  # fmt: skip


def _finishing(rows: Sequence[Row]) -> tuple[Any, ...]:
    return (
        [row["id"] for row in rows],
        [row["attempt"] for row in rows],
        [row["lease_id"] for row in rows],
        [random_uuid() for _ in rows],
        [Verb.SUCCEED.value] * len(rows),
        [_NO_RESULT] * len(rows),
        [],
        [],
        [],
        [0.0] * len(rows),
        [row["causation_id"] for row in rows],
        ["default"] * len(rows),
        [],
    )
