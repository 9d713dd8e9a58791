"""A bulk redrive of all that is dead, while the API and the operation runner are killed again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.figure import COUNT, SHARE, Figures
from tests.bench.interfaces.door import Door, Entrance, start_api
from tests.bench.interfaces.size import Sizes
from tests.bench.interfaces.table import Tell, sql
from tests.bench.stage import Stage

_RUNNER, _API = "operations", "api"
_DAEMONS = ("relay", "stats")
# Who is killed once the next part of the tasks has been moved.
_KILLED = ((_API,), (_RUNNER,), (_API, _RUNNER), (_RUNNER,), (_API,))
# Nothing is moved for longer: the runner was killed, and its lease has to end before another one may go on.
_OUTAGE_SECONDS = 5.0
_WINDOW_SECONDS = 10.0
_DONE = "done"


@dataclass(frozen=True)
class Flow:
    """When batches were moved, in seconds of one clock, and how many tasks each had."""

    batches: Sequence[tuple[float, int]]

    @property
    def rate(self) -> float:
        """How many tasks a second, while somebody was there to do it."""
        active = [(pause, tasks) for pause, tasks in self._steps if pause <= _OUTAGE_SECONDS]
        seconds = sum(pause for pause, _ in active)
        return sum(tasks for _, tasks in active) / seconds if seconds else 0.0

    @property
    def outages(self) -> list[float]:
        """How long nobody was there."""
        return [pause for pause, _ in self._steps if pause > _OUTAGE_SECONDS]

    @property
    def peak(self) -> float:
        """The most tasks a second in any ten seconds."""
        most, held = 0, 0
        first = 0
        for at, tasks in self.batches:
            held += tasks
            while self.batches[first][0] <= at - _WINDOW_SECONDS:
                held -= self.batches[first][1]
                first += 1
            most = max(most, held)
        return most / _WINDOW_SECONDS

    @property
    def _steps(self) -> list[tuple[float, int]]:
        """How long after the one before it each batch came, and its tasks."""
        pairs = zip(self.batches, self.batches[1:], strict=False)
        return [(later - at, tasks) for (at, _), (later, tasks) in pairs]


async def measure(stage: Stage, where: Entrance, sizes: Sizes, figures: Figures, tell: Tell) -> None:
    """Ask for it, kill, and look in tables and log what came of it."""
    await stage.connection.execute(sql("note_dead"))
    dead = int(await stage.connection.fetchval("select count(*) from public.dead_before"))
    mark = await stage.last_seq()
    for role in (*_DAEMONS, _RUNNER):
        stage.start(role)
    await asyncio.to_thread(start_api, stage, where)
    number = await asyncio.to_thread(_asked, where, sizes.rate)
    for part, roles in enumerate(_KILLED, start=1):
        await _moved(stage, number, dead * part // (len(_KILLED) + 1), dead, tell)
        for role in roles:
            stage.kill(role)
        for role in roles:
            if role == _API:
                await asyncio.to_thread(start_api, stage, where)
            else:
                stage.start(role)
    await _moved(stage, number, dead, dead, tell)
    await _conclude(stage, where, number, figures)
    for role in (*_DAEMONS, _RUNNER, _API):
        await stage.end(role)
    await _note(stage, number, mark, dead, sizes, figures)


def _asked(where: Entrance, rate: int) -> int:
    door = Door(where.port, key=where.key)
    try:
        made = door.act(
            "/operations",
            {
                "action": "redrive",
                "filter": "status:dead",
                "rate_per_minute": rate * 60.0,
                "reason": "mended",
            },
        )
    finally:
        door.close()
    return int(made["id"])


async def _moved(stage: Stage, number: int, count: int, dead: int, tell: Tell) -> None:
    """Wait until so many have been moved."""

    async def are_moved() -> bool:
        moved = await stage.connection.fetchval("select moved from grns.operations where id = $1", number)
        tell("redriving, killing", moved, dead)
        return bool(moved >= count)

    await stage.until(are_moved)


async def _conclude(stage: Stage, where: Entrance, number: int, figures: Figures) -> None:
    """Wait until the API says that it is done."""

    def look() -> bool:
        door = Door(where.port, key=where.key)
        try:
            return bool(door.ask(f"/operations/{number}")["state"] == _DONE)
        finally:
            door.close()

    async def is_done() -> bool:
        return await asyncio.to_thread(look)

    await stage.until(is_done)


async def _note(stage: Stage, number: int, mark: int, dead: int, sizes: Sizes, figures: Figures) -> None:
    row = await stage.connection.fetchrow(sql("check_redrive"), number, mark)
    assert row is not None
    for name in ("once", "otherwise", "others", "moved", "skipped", "ends"):
        figures.note(f"redrive.{name}", row[name], COUNT)
    figures.note("redrive.share", row["once"] / dead, SHARE)
    figures.note(
        "redrive.wrong", row["otherwise"] + row["others"] + row["skipped"] + abs(row["ends"] - 1), COUNT
    )
    batches = await stage.connection.fetch(sql("read_redrive"), number, mark)
    flow = Flow([(batch["at"], batch["tasks"]) for batch in batches])
    figures.note("redrive.rate", flow.rate, "tasks/s")
    figures.note("redrive.kept", flow.rate / sizes.rate, SHARE)
    figures.note("redrive.peak", flow.peak / sizes.rate, SHARE)
    figures.note("redrive.kills", sum(map(len, _KILLED)), COUNT)
    for seconds in flow.outages:
        figures.note("redrive.outage", seconds, "s")
