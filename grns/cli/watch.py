"""Looking on while an operation goes on."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

from grns.cli import failure
from grns.cli.output import Output
from grns.errors import WaitTimeoutError

if TYPE_CHECKING:
    from grns.operations.service import Operation
    from grns.postgres.database import Database

_LOOK_SECONDS = 0.25
_PLAIN_EVERY_SECONDS = 5.0
_LONG_SECONDS = 5.0


class _WatchProgress(Protocol):
    def __call__(self, found: Operation) -> None: ...


def watch(out: Output, number: int, timeout: float | None) -> None:
    """Look on until an operation has ended or waits for somebody, show it, and end with its code."""
    from grns.cli.operation import present

    found = asyncio.run(_look_on(number, timeout))
    present(out, found)
    if found.state.value == "done":
        return
    hint = f"grns operation resume {number}" if found.state.value == "paused" else "grns operation list"
    failure.say(f"operation {number} is {found.state.value}", hint)
    raise click.exceptions.Exit(failure.FAILED)


async def _look_on(number: int, timeout: float | None) -> Operation:
    from grns.cli.session import reading

    async with reading() as session:
        try:
            with _progress() as show:
                async with asyncio.timeout(timeout):
                    return await _until_end(session.database, number, session.workspace, show)
        except TimeoutError as error:
            late = WaitTimeoutError(f"operation {number} was not done in time; it goes on")
            raise failure.hinted(late, f"grns operation show {number}") from error


async def _until_end(database: Database, number: int, workspace: str, show: _WatchProgress) -> Operation:
    from grns.operations.model import ENDED, State
    from grns.operations.service import read_operation

    long_at: float | None = time.monotonic() + _LONG_SECONDS
    while True:
        found = await read_operation(database, number, workspace=workspace)
        show(found)
        if found.state in ENDED or found.state is State.PAUSED:
            return found
        if long_at is not None and found.state is State.PENDING and time.monotonic() > long_at:
            failure.note("nobody has begun with it: does a runner run (grns server, grns operation-runner)?")
            long_at = None
        await asyncio.sleep(_LOOK_SECONDS)


@contextmanager
def _progress() -> Iterator[_WatchProgress]:
    """Show how far it is: a bar on a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield _WatchLines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    counted = TextColumn(
        "{task.fields[state]}: {task.fields[moved]:,} moved, {task.fields[skipped]:,} skipped"
    )
    with Progress(
        BarColumn(), counted, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as progress:
        bar = progress.add_task("", total=None, state="pending", moved=0, skipped=0)

        def show(found: Operation) -> None:
            done, total = _done(found)
            progress.update(bar, completed=done, total=total)
            progress.update(bar, state=found.state.value, moved=found.moved, skipped=found.skipped)

        yield show


class _WatchLines:
    """Writes a line now and then."""

    def __init__(self) -> None:
        self._due_at = time.monotonic() + _PLAIN_EVERY_SECONDS

    def __call__(self, found: Operation) -> None:
        """Show how far it is, if it is time to."""
        if time.monotonic() < self._due_at:
            return
        self._due_at = time.monotonic() + _PLAIN_EVERY_SECONDS
        done, total = _done(found)
        failure.note(f"{found.state.value}: {done} of {'?' if total is None else total}")


def _done(found: Operation) -> tuple[int, int | None]:
    """Return how many tasks are behind it, and of how many: None while nobody knows."""
    return found.moved + found.skipped, found.matched if found.is_exact else None
