"""What the audience sees: a bar on a terminal, plain lines elsewhere, a table at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from grns.dev.demo.numbers import DemoNumbers
from grns.dev.demo.truth import DeadLetterRow
from grns.model.percentiles import Percentiles

_LINE_SECONDS = 2.0
_MOST_DIFFERENCES = 20


class DemoScreen:
    """Tells what happens, as it happens."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=self._console, transient=True, disable=not self._console.is_terminal,
        )  # fmt: skip
        self._bar = self._progress.add_task("tasks", total=None)
        self._started_at = time.monotonic()
        self._line_at = 0.0

    def say(self, text: str) -> None:
        """Print one line."""
        seconds = time.monotonic() - self._started_at
        self._progress.console.print(f"{seconds:5.1f} s  {text}", markup=False, soft_wrap=True)

    def step(self, ended: int, total: int, running: int) -> None:
        """Show how far the work has got."""
        self._progress.update(self._bar, completed=ended, total=total, description=f"{running} running")
        now = time.monotonic()
        if self._progress.disable and now - self._line_at >= _LINE_SECONDS:
            self._line_at = now
            self.say(f"{ended} of {total} tasks have ended, {running} are running")

    def conclude(
        self, numbers: DemoNumbers, seen: dict[str, int], letters: list[DeadLetterRow], differences: list[str]
    ) -> None:
        """Print the table, and what differs."""
        self._progress.stop()
        self._console.print(_table(numbers, seen, letters))
        for difference in differences[:_MOST_DIFFERENCES]:
            self.say(f"DIFFERENT  {difference}")
        if len(differences) > _MOST_DIFFERENCES:
            self.say(f"… and {len(differences) - _MOST_DIFFERENCES} more")

    def dump(self, lines: Iterable[str]) -> None:
        """Print the state that the demo was left in."""
        self._progress.stop()
        for line in lines:
            self._console.print(line, markup=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def _table(numbers: DemoNumbers, seen: dict[str, int], letters: list[DeadLetterRow]) -> Table:
    table = Table(show_header=False)
    for state, count in sorted(numbers.states.items()):
        table.add_row(f"tasks {state}", str(count))
    table.add_section()
    table.add_row("executions", str(numbers.executions))
    table.add_row("retries", str(numbers.retries))
    table.add_row("re-executions after the kill", str(numbers.re_executions))
    table.add_row("throughput", f"{numbers.per_second:.0f} tasks/s over {numbers.work_seconds:.1f} s")
    table.add_row("queue wait, p50 / p99", _spread(numbers.queue_wait))
    table.add_row("run, p50 / p99", _spread(numbers.run))
    table.add_section()
    for kind in sorted(numbers.events | seen):
        table.add_row(kind, f"{numbers.events.get(kind, 0)} logged, {seen.get(kind, 0)} seen")
    table.add_section()
    for letter in letters:
        table.add_row(f"dead letter: {letter.reason}", f"{len(letter.body)} bytes kept")
    return table


def _spread(spread: Percentiles) -> str:
    return f"{spread.p50 * 1000:.0f} ms / {spread.p99 * 1000:.0f} ms"
