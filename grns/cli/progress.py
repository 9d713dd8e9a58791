"""Progress of long work on stderr: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from grns.cli import failure

_LINE_SECONDS = 5.0


class ShowProgress(Protocol):
    """Shows how many of how many are done; `total` is None while it is unknown."""

    def __call__(self, done: int, total: int | None, text: str) -> None: ...


@contextmanager
def progress(*, has_lines: bool = True) -> Iterator[ShowProgress]:
    """Show progress; without a terminal as lines, or not at all."""
    if not sys.stderr.isatty():
        yield _Lines() if has_lines else lambda done, total, text: None
        return
    bar = Progress(
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=None)

        def show(done: int, total: int | None, text: str) -> None:
            bar.update(task, completed=done, total=total, description=text)

        yield show


class _Lines:
    def __init__(self) -> None:
        self._due_at = 0.0

    def __call__(self, done: int, total: int | None, text: str) -> None:
        if total is not None and time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + _LINE_SECONDS
            failure.note(f"{text} ({done} of {total})")
