"""A million queued tasks against ten thousand: slices of both are run in turn, on one server."""

from __future__ import annotations

from tests.bench.figure import MEGABYTES, TASKS, TIMES, Figures
from tests.bench.ground import Ground
from tests.bench.pace import read_pace
from tests.bench.size import Sizes
from tests.bench.stage import Stage

OURS = ("worker", "server")
_SMALL, _BIG = "small", "big"
_QUEUED = "select count(*) from grns.tasks where queued_at is not null"


async def measure(ground: Ground, sizes: Sizes, figures: Figures) -> None:
    """Measure the rate of each slice, and what all processes hold in memory at its start and its end.

    A slice takes a second or less, so there are more of them than rounds.
    """
    async with ground.stage() as small, ground.stage() as big:
        await _load(small, sizes.small_backlog)
        await _load(big, sizes.big_backlog)
        for _ in range(2 * sizes.rounds - 1):
            await _fill_up(small, sizes.small_backlog)
            await _run_slice(small, _SMALL, sizes, figures)
            await _run_slice(big, _BIG, sizes, figures)
    growth = [figures.ratio(_memory(_BIG, "end", role), _memory(_SMALL, "end", role)) for role in OURS]
    figures.note("backlog.memory", max(ratio for ratio in growth if ratio is not None), TIMES)


async def _load(stage: Stage, count: int) -> None:
    stage.start("server")
    await stage.submit(count)
    await stage.relayed()
    # What autovacuum would begin with in the midst of a slice.
    await stage.connection.execute("vacuum analyze grns.tasks")
    await stage.connection.execute("checkpoint")


async def _fill_up(stage: Stage, count: int) -> None:
    """Let as many be queued as at the beginning."""
    await stage.submit(count - int(await stage.connection.fetchval(_QUEUED)))
    await stage.relayed()


async def _run_slice(stage: Stage, name: str, sizes: Sizes, figures: Figures) -> None:
    mark = await stage.last_seq()
    await stage.start_worker()
    _note_memory(stage, name, "start", figures)
    await stage.finished(sizes.slice, after_seq=mark, messages=2 * sizes.slice)
    _note_memory(stage, name, "end", figures)
    await stage.end("worker")
    await stage.relayed()
    figures.note(f"backlog.{name}", (await read_pace(stage.connection, mark)).rate(sizes.slice), TASKS)


def _note_memory(stage: Stage, name: str, when: str, figures: Figures) -> None:
    for role, used in stage.usage().items():
        figures.note(_memory(name, when, role), used.rss_megabytes, MEGABYTES)


def _memory(name: str, when: str, role: str) -> str:
    return f"backlog.{name}.memory.{when}.{role}"
