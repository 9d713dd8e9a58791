"""`grns events …`."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TypedDict, Unpack

import click

from grns.cli import failure, option
from grns.cli.detail import summary
from grns.cli.event_log import EventLog, opened_file
from grns.cli.group import Group
from grns.cli.output import JSONL, Output, output_option, text
from grns.cli.replay import replay
from grns.cli.session import CliSession, with_session
from grns.errors import UnavailableError
from grns.model.text import shortened
from grns.outbox.events import EventQuery, LogEvent
from grns.runtime.signals import end_on_signals

Rows = Sequence[LogEvent]

_PAUSE_SECONDS = 0.5
_AWAY_SECONDS = 2.0
_HIGHEST = 2**63 - 1
_WIDE = 120  # from this width on, an event is one line


class _Selection(TypedDict):
    kinds: Sequence[str]
    task_id: str | None
    after: int | None
    since: float | datetime | None


@click.group(cls=Group)
def events() -> None:
    """Follow, export and replay events."""


events.add_command(replay)


_selection_options = option.together(
    click.option(
        "--kind",
        "kinds",
        metavar="PATTERN",
        multiple=True,
        type=option.KindType(has_commands=True),
        help="Only evt.task.dead, evt.task.*, dlq.*.*, cmd.*.* (those that a worker passed on);"
        " without: all events and dead letters.",
    ),
    click.option("--task", "task_id", metavar="ID", type=option.TASK_ID, help="Only events of this task."),
    click.option(
        "--after", type=click.IntRange(0, _HIGHEST), metavar="SEQ", help="Continue after this event."
    ),
    click.option(
        "--since", type=option.Moment(), metavar="TIME", help="Start: 2h ago, or 2026-01-31T12:00:00Z."
    ),
)


@events.command(examples=["grns events tail", "grns events tail --kind evt.task.dead --since 1h -o jsonl"])
@_selection_options
@output_option
@with_session("read")
async def tail(session: CliSession, out: Output, **selection: Unpack[_Selection]) -> None:
    """Print events, one per line, until Ctrl-C: from now on, or after --after or --since.

    Events come from the event log up to its high-water mark, about half a second late: none is left out and
    none comes twice. To continue later, pass the last SEQ to --after.
    """
    end_on_signals()
    out.is_endless = True
    log = await _opened(session, is_from_now=True, **selection)
    kinds = ", ".join(selection["kinds"]) or "all events"
    failure.note(f"following {kinds} of workspace {session.workspace}; Ctrl-C ends")
    try:
        await _follow(out, log)
    finally:
        failure.note(f"continue with --after {log.after}")


async def _follow(out: Output, log: EventLog) -> None:
    """Print new events without end; while Postgres is away, wait for it."""
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
            log.refresh()


@events.command(
    examples=[
        "grns events export --since 1d > events.jsonl",
        "grns events export --kind 'evt.task.*' --append-to events.jsonl",
    ]
)
@_selection_options
@click.option("--until", type=option.Moment(), metavar="TIME", help="End: only events before this time.")
@click.option(
    "--append-to",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Append to this file, after the last event in it.",
)
@with_session("read")
async def export(
    session: CliSession,
    path: Path | None,
    until: float | datetime | None,
    **selection: Unpack[_Selection],
) -> None:
    """Write the workspace's event log as JSON lines, the oldest first.

    The export ends at the high-water mark and prints the SEQ to continue from on standard error: pass it to
    --after.

    With --append-to, run the same command again to append new events, even after a killed export: an
    incomplete line at the end is removed first.
    """
    end_on_signals()
    with _sink(path, session.workspace) as (write, written_up_to):
        if written_up_to:
            selection["after"] = max(written_up_to, selection["after"] or 0)
        log = await _opened(session, until=until, **selection)
        await _copy(log, write)
    if (reason := await log.delay_reason()) is not None:
        failure.note(reason)


@contextmanager
def _sink(path: Path | None, workspace: str) -> Iterator[tuple[Callable[[Rows], None], int]]:
    """Return the function that writes rows, and the number of the last event that was written before."""
    if path is None:
        yield _write, 0
        return
    with opened_file(path, workspace) as file:
        yield file.write, file.last_seq


def _write(rows: Rows) -> None:
    Output(JSONL).rows(rows)
    sys.stdout.flush()


async def _copy(log: EventLog, write: Callable[[Rows], None]) -> None:
    """Write everything up to the high-water mark, and print where to continue."""
    count, is_complete = 0, False
    try:
        while not log.is_at_end:
            rows = await log.page()
            write(rows)
            log.keep()
            count += len(rows)
        is_complete = True
    finally:
        outcome = f"{count} exported" if is_complete else "interrupted"
        failure.note(f"{outcome}; continue with --after {log.after}")


async def _opened(
    session: CliSession,
    *,
    until: float | datetime | None = None,
    is_from_now: bool = False,
    **selection: Unpack[_Selection],
) -> EventLog:
    query = EventQuery(session.workspace, selection["kinds"], selection["task_id"])
    log, after = EventLog(session.database, query), selection["after"]
    await log.open(after=after, since=selection["since"], until=until, is_from_now=is_from_now)
    if after is not None and after < log.first - 1:
        failure.note(f"the log begins at {log.first} now: the events between {after} and that are deleted")
    if after is not None and after > log.settled:
        failure.note(f"the high-water mark is {log.settled}: there is nothing after {after} yet")
    return log


def _print(out: Output, row: LogEvent) -> None:
    out.record(row, lambda: _draw(row))


def _draw(row: LogEvent) -> None:
    """Write an event in one line, or in two on a narrow terminal."""
    at = f"{row.created_at:%H:%M:%S.%f}"[:12]
    head = f"{at}Z  {row.kind:<26}  {row.task_id or '-':<29}"
    by = row.actor if row.actor and "actor" not in row.payload else None
    payload = summary({"by": by, **row.payload})
    width = shutil.get_terminal_size().columns
    if sys.stdout.isatty() and width < _WIDE:
        text(f"{row.seq:>6}  {head.rstrip()}")
        text(f"{'':8}{shortened(payload, width - 8)}")
    else:
        text(f"{row.seq:>9}  {head}  {payload}")
