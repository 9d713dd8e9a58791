"""Progress of long work on stderr: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from grns.cli import failure
from grns.model.text import safe

_LINE_SECONDS = 5.0
_READ_SECONDS = 0.25
_LATE_SECONDS = 5.0


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
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=None)

        def show(done: int, total: int | None, text: str) -> None:
            bar.update(task, completed=done, total=total, description=safe(text))

        yield show


async def follow(
    read: Callable[[], Awaitable[Any]],
    show: Callable[[Any], tuple[int, int | None, str]],
    *,
    has_ended: Callable[[Any], bool],
    is_waiting: Callable[[Any], bool],
    hint: str,
) -> Any:
    """Read a row again and again until it has ended, and return it.

    Args:
        show: makes what is done, what there is, and a text of a row.
        hint: is written once if the row is still waiting after 5 seconds.
    """
    late_at = time.monotonic() + _LATE_SECONDS
    with progress() as show_progress:
        while True:
            row = await read()
            show_progress(*show(row))
            if has_ended(row):
                return row
            if is_waiting(row) and time.monotonic() > late_at:
                failure.note(f"not started yet: {hint}")
                late_at = math.inf
            await asyncio.sleep(_READ_SECONDS)


class _Lines:
    def __init__(self) -> None:
        self._due_at = 0.0

    def __call__(self, done: int, total: int | None, text: str) -> None:
        if total is not None and time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + _LINE_SECONDS
            failure.note(f"{text} ({done} of {total})")
