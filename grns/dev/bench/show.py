"""What somebody sees while it runs: bars on a terminal, and what there is to say; all of it on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Step = Callable[[int], object]


class BenchProgress:
    """Shows how far it is, and leaves nothing of that behind."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=Console(stderr=True, highlight=False), transient=True, disable=not sys.stderr.isatty(),
        )  # fmt: skip

    def say(self, text: str) -> None:
        """Print one line."""
        self._progress.console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def phase(self, what: str, total: int) -> Iterator[Step]:
        """Show a bar while something is done; yields what tells how much of it is."""
        bar = self._progress.add_task(what, total=total)
        yield lambda done: self._progress.update(bar, completed=done)
        self._progress.update(bar, completed=total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
