"""`grns events …`: what happens, as it happens; the log as lines of JSON; events published again."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import JSONL, Output, output_option, text
from grns.cli.replay import replay
from grns.runtime.signals import end_on_signals
from grns.text import shortened

if TYPE_CHECKING:
    from grns.cli.event_log import EventLog
    from grns.cli.session import CliSession

Rows = Sequence[Mapping[str, Any]]

_PAUSE_SECONDS = 0.5
_AWAY_SECONDS = 2.0
_HIGHEST = 2**63 - 1
_WIDE = 120  # from so many columns on an event is one line


@click.group(cls=Group)
def events() -> None:
    """Follow, export and replay events."""


events.add_command(replay)


def _chosen(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what says which events are wanted, and behind which number or time."""
    for added in (
        click.option(
            "--since", type=option.Moment(), metavar="TIME", help="Start: 2h ago, or 2026-01-31T12:00:00Z."
        ),
        click.option(
            "--after", type=click.IntRange(0, _HIGHEST), metavar="SEQ", help="Continue after this event."
        ),
        click.option(
            "--task", "task_id", metavar="ID", type=option.TASK_ID, help="Only events of this task."
        ),
        click.option(
            "--kind",
            "kinds",
            metavar="PATTERN",
            multiple=True,
            type=option.KindType(has_commands=True),
            help="Only evt.task.dead, evt.task.*, dlq.*.*, cmd.*.*; without: all events and dead letters.",
        ),
    ):
        function = added(function)
    return function


@events.command()
@_chosen
@output_option
def tail(
    out: Output,
    kinds: Sequence[str],
    task_id: str | None,
    after: int | None,
    since: float | datetime | None,
) -> None:
    """Print events, one per line, until Ctrl-C: from now on, or after --after or --since.

    Events come from the event log up to its high-water mark, about half a second late: none is left out and
    none comes twice. To continue later, pass the last SEQ to --after.
    """
    out.is_endless = True
    _run(_tail(out, kinds, task_id, after, since))


@events.command()
@_chosen
@click.option("--until", type=option.Moment(), metavar="TIME", help="End: only events before this time.")
@click.option(
    "--into",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Append to this file, after the last event in it.",
)
def export(
    kinds: Sequence[str],
    task_id: str | None,
    after: int | None,
    since: float | datetime | None,
    until: float | datetime | None,
    path: Path | None,
) -> None:
    """Write the workspace's event log as JSON lines, the oldest first.

    The export ends at the high-water mark and prints the SEQ to continue from on standard error: pass it to
    --after.

    With --into, run the same command again to append new events, even after a killed export: an incomplete
    line at the end is removed first.
    """
    _run(_export(kinds, task_id, after, since, until, path))


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Do it until it is done or asked to end, and tell the place then."""

    async def run() -> None:
        end_on_signals()
        await work

    try:
        asyncio.run(run())
    except asyncio.CancelledError as end:
        raise click.exceptions.Exit(failure.TERMINATED) from end


async def _tail(
    out: Output,
    kinds: Sequence[str],
    task_id: str | None,
    after: int | None,
    since: float | datetime | None,
) -> None:
    from grns.cli.session import reading

    async with reading() as session:
        log = await _opened(session, kinds, task_id, after=after, since=since, is_from_now=True)
        failure.note(
            f"following {', '.join(kinds) or 'all events'} of workspace {session.workspace}; Ctrl-C ends"
        )
        try:
            await _follow(out, log)
        finally:
            failure.note(f"it goes on with --after {log.behind}")


async def _follow(out: Output, log: EventLog) -> None:
    """Print what is new, for ever; while Postgres is away, wait for it."""
    from grns.errors import UnavailableError

    is_away = False
    while True:
        try:
            rows = await log.page()
        except UnavailableError as error:
            if not is_away:
                failure.note(f"waiting: {error}")
            is_away = True
            await asyncio.sleep(_AWAY_SECONDS)
            continue
        is_away = False
        for row in rows:
            _print(out, row)
        log.keep()
        if log.is_at_end:
            await asyncio.sleep(_PAUSE_SECONDS)
            log.look_again()


async def _export(
    kinds: Sequence[str],
    task_id: str | None,
    after: int | None,
    since: float | datetime | None,
    until: float | datetime | None,
    path: Path | None,
) -> None:
    from grns.cli.session import reading

    async with reading() as session:
        with _sink(path, session.workspace) as (write, held):
            behind = after if held == 0 else max(held, after or 0)
            log = await _opened(session, kinds, task_id, after=behind, since=since, until=until)
            await _copy(log, write)
        if (why := await log.held_up()) is not None:
            failure.note(why)


@contextmanager
def _sink(path: Path | None, workspace: str) -> Iterator[tuple[Callable[[Rows], None], int]]:
    """Say how rows are written, and up to which number they have been written before."""
    if path is None:
        yield _write, 0
        return
    from grns.cli import event_file

    with event_file.opened(path, workspace) as file:
        yield file.write, file.behind


def _write(rows: Rows) -> None:
    Output(JSONL).rows(rows, [])
    sys.stdout.flush()


async def _copy(log: EventLog, write: Callable[[Rows], None]) -> None:
    """Write all that is settled, and say at the end how far that was."""
    count, is_whole = 0, False
    try:
        while not log.is_at_end:
            rows = await log.page()
            write(rows)
            log.keep()
            count += len(rows)
        is_whole = True
    finally:
        said = f"{count} exported" if is_whole else "cut short"
        failure.note(f"{said}; it goes on with --after {log.behind}")


async def _opened(
    session: CliSession,
    kinds: Sequence[str],
    task_id: str | None,
    *,
    after: int | None,
    since: float | datetime | None,
    until: float | datetime | None = None,
    is_from_now: bool = False,
) -> EventLog:
    from grns.cli.event_log import EventLog
    from grns.outbox.events import EventQuery

    log = EventLog(session.database, EventQuery(session.workspace, kinds, task_id))
    await log.open(after=after, since=since, until=until, is_from_now=is_from_now)
    if after is not None and after < log.first - 1:
        failure.note(f"the log begins with {log.first} now: what was between {after} and that is deleted")
    if after is not None and after > log.settled:
        failure.note(f"the log is told up to {log.settled} now: there is nothing behind {after} yet")
    return log


def _print(out: Output, row: Mapping[str, Any]) -> None:
    out.record(row, lambda: _draw(row))


def _draw(row: Mapping[str, Any]) -> None:
    """Write an event for people: in one line, or in two where a terminal is narrow."""
    from grns.cli.detail import summary

    at = f"{row['created_at']:%H:%M:%S.%f}"[:12]
    head = f"{at}Z  {row['kind']:<26}  {row['task_id'] or '-':<29}"
    by = row["actor"] if row["actor"] and "actor" not in row["payload"] else None
    said = summary({"by": by, **row["payload"]})
    width = shutil.get_terminal_size().columns
    if sys.stdout.isatty() and width < _WIDE:
        text(f"{row['seq']:>6}  {head.rstrip()}")
        text(f"{'':8}{shortened(said, width - 8)}")
    else:
        text(f"{row['seq']:>9}  {head}  {said}")
