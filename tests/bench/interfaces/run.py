"""A run: the table, and on it what was asked for. What breaks in one part costs the others nothing."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from rich.console import Console

from tests.bench.figure import COUNT, Figures
from tests.bench.ground import ground
from tests.bench.interfaces import ask, cost, redrive
from tests.bench.interfaces.door import Entrance, entrance
from tests.bench.interfaces.goal import settle
from tests.bench.interfaces.size import Sizes
from tests.bench.interfaces.table import Tell, fill, inspected
from tests.bench.machine import machine
from tests.bench.stage import Stage
from tests.chaos.show import progress_on

Part = Callable[[Stage, Entrance, Sizes, Figures, Tell], Awaitable[None]]

PARTS: dict[str, Part] = {"answers": ask.measure, "cost": cost.measure, "redrive": redrive.measure}


class Run:
    """Measures the parts that are named, in their order: the redrive leaves nothing dead."""

    def __init__(self, sizes: Sizes, names: Sequence[str]) -> None:
        self._sizes = sizes
        self._names = names
        self.figures = Figures()
        self.machine: dict[str, str] = {}
        self.has_failed = False

    async def measure(self, directory: Path, console: Console) -> None:
        """Measure, and show on this console what is being done."""
        with progress_on(console) as progress:
            bar = progress.add_task("", total=None)
            told = ""

            def tell(text: str, done: float, total: float) -> None:
                nonlocal told
                progress.update(bar, description=text, completed=int(done), total=int(total))
                if text != told and not console.is_terminal:
                    console.print(text, markup=False)
                told = text

            async with ground(directory) as here, here.stage() as stage:
                self.machine = await machine(here.admin)
                await self._fill(stage, tell)
                where = await entrance(stage)
                for name, measure in PARTS.items():
                    if name in self._names:
                        await self._try(name, measure(stage, where, self._sizes, self.figures, tell))
                if "redrive" in self._names and not self.has_failed:
                    await self._inspect("redrive", stage, tell)
        settle(self.figures)

    async def _fill(self, stage: Stage, tell: Tell) -> None:
        began = time.monotonic()
        await fill(stage, self._sizes, tell)
        self.figures.note("table.filled", time.monotonic() - began, "s")
        self.figures.note("table.messages", await stage.last_seq(), COUNT)
        size = await stage.connection.fetchval("select pg_database_size(current_database())")
        self.figures.note("table.size", size / 1024**2, "MB")
        await self._inspect("table", stage, tell)

    async def _inspect(self, name: str, stage: Stage, tell: Tell) -> None:
        inspection = await inspected(stage, self._sizes, tell)
        self.figures.note(f"{name}.violations", inspection.counts.total(), COUNT)
        for finding in inspection.findings[:5]:
            self.figures.remarks.append(f"{name}: {finding}")

    async def _try(self, name: str, part: Awaitable[None]) -> None:
        busy = os.getloadavg()[0]
        self.figures.remarks.append(f"{name}: began with a load of {busy:.1f}, of whatever else ran here")
        try:
            await part
        except Exception as error:  # whatever it was: it is told, and the others are measured
            self.has_failed = True
            told = "".join(traceback.format_exception(error))
            self.figures.remarks.append(f"{name} broke: {told}".rstrip())
