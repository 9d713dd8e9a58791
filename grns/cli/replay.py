"""`grns events replay`: have a stretch of the log published again."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any, Protocol

import click

from grns.cli import failure, option
from grns.cli.group import Command
from grns.cli.output import Output, output_option, text
from grns.errors import ConflictError, InvalidInputError, WaitTimeoutError

_DAY_SECONDS = 86_400.0
_LOOK_SECONDS = 0.25
_PLAIN_EVERY_SECONDS = 5.0
_LONG_SECONDS = 5.0
_EVERYTHING = ("^(evt|dlq)[.]",)


class _ReplayProgress(Protocol):
    def __call__(self, row: Any) -> None: ...


@click.command(cls=Command)
@click.option(
    "--since", metavar="TIME", type=option.Moment(), required=True, help="Start: 2h ago, or a time."
)
@click.option(
    "--until", metavar="TIME", type=option.Moment(), help="End: 1h ago, or a time. Defaults to now."
)
@click.option(
    "--kind", "kinds", metavar="PATTERN", multiple=True, type=option.KindType(), help="Only evt.task.dead, …"
)
@click.option("--all-workspaces", "is_everywhere", is_flag=True, help="Events of all workspaces.")
@click.option(
    "--forgotten",
    "is_forgotten",
    is_flag=True,
    help="Include events older than the deduplication history: handlers may run twice.",
)
@option.timeout_option
@output_option
def replay(
    since: float | datetime,
    until: float | datetime | None,
    kinds: Sequence[str],
    is_everywhere: bool,
    is_forgotten: bool,
    timeout: float | None,
    out: Output,
) -> None:
    """Publish the events and dead letters of a time range again.

    The relay publishes them in the background; new messages come first. This command shows the progress, and
    Ctrl-C withdraws the rest. Messages keep their ids: the broker drops those within its duplicate window (10
    minutes on streams that grns created), and subscribers get the others once more.

    Event handlers remember what they handled (processed_retention_days, by default as long as the event log)
    and skip it. Pass --forgotten for older events.

    Commands cannot be replayed: workers find their tasks in PostgreSQL.
    """
    end = 0.0 if until is None else until
    _check(since, end)
    row = asyncio.run(_replay(since, end, kinds, is_everywhere, is_forgotten, timeout))
    record = {
        "replay": row["id"],
        "since": row["since"],
        "until": row["until"],
        "stored": row["stored"],
        "duplicates": row["duplicates"],
    }
    out.record(record, lambda: _conclude(row))


def _check(since: float | datetime, until: float | datetime) -> None:
    """Refuse what is upside down, as far as that can be told without asking for the time."""
    are_ago = isinstance(since, float) and isinstance(until, float) and since <= until
    are_times = isinstance(since, datetime) and isinstance(until, datetime) and since >= until
    if are_ago or are_times:
        raise click.BadParameter("it has to be before --until", param_hint="--since")


async def _replay(
    since: float | datetime,
    until: float | datetime,
    kinds: Sequence[str],
    is_everywhere: bool,
    is_forgotten: bool,
    timeout: float | None,
) -> Any:
    from grns.cli.session import writing
    from grns.model.subjects import RELAY_NUDGE
    from grns.outbox import replay_requests as store

    async with writing() as session:
        days = session.app.settings.remembered_days
        if is_forgotten:
            failure.note(f"event handlers handle again what they handled more than {days:g} days ago")
        asking = store.request(
            session.database,
            workspace=None if is_everywhere else session.workspace,
            patterns=[_expression(kind) for kind in kinds] or _EVERYTHING,
            since=since,
            until=until,
            remembered_seconds=None if is_forgotten else days * _DAY_SECONDS,
        )
        async with _asked(session.database, asking, days) as number:
            await session.transport.nudge(RELAY_NUDGE)
            with _progress() as show:
                try:
                    async with asyncio.timeout(timeout):
                        return await _watch(session.database, number, show)
                except TimeoutError as error:
                    late = f"replay {number} was not done in time, and is withdrawn"
                    raise WaitTimeoutError(late) from error


@asynccontextmanager
async def _asked(
    database: Any, request: Coroutine[Any, Any, int], remembered_days: float
) -> AsyncIterator[int]:
    """Ask for a replay, and in the end withdraw what is not done of it: also where Ctrl-C comes between."""
    from grns.outbox import replay_requests as store

    asking = asyncio.ensure_future(request)
    try:
        number = await asyncio.shield(asking)
    except asyncio.CancelledError:
        await store.withdraw(database, await asking)
        raise
    except ConflictError as error:
        raise failure.hinted(
            ConflictError(f"{error}: {remembered_days:g} days; --forgotten lets them handle it again"),
            f"grns events replay --since {remembered_days:g}d",
        ) from error
    except InvalidInputError as error:
        raise failure.hinted(error, "grns events replay --since 2h --until 1h") from error
    try:
        yield number
    finally:
        await store.withdraw(database, number)  # nothing to do where it is done


def _expression(kind: str) -> str:
    """Return a kind as a regular expression: a `*` stands for one word."""
    return "^" + "[.]".join("[^.]+" if word == "*" else re.escape(word) for word in kind.split(".")) + "$"


async def _watch(database: Any, number: int, show: _ReplayProgress) -> Any:
    """Look on until it has ended."""
    from grns.outbox import replay_requests as store

    long_at: float | None = time.monotonic() + _LONG_SECONDS
    while True:
        row = await store.progress(database, number)
        show(row)
        if row["outcome"] == "done":
            return row
        if row["outcome"] is not None:
            raise ConflictError(f"replay {number} was withdrawn by somebody else")
        if long_at is not None and row["started_at"] is None and time.monotonic() > long_at:
            failure.note(
                "no relay has begun with it: does one run (grns relay), or is another replay before?"
            )
            long_at = None
        await asyncio.sleep(_LOOK_SECONDS)


@contextmanager
def _progress() -> Iterator[_ReplayProgress]:
    """Show how far it is: a bar on a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield _ReplayLines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    counted = TextColumn("{task.fields[stored]:,} stored, {task.fields[duplicates]:,} known to the broker")
    with Progress(
        BarColumn(), counted, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as progress:
        bar = progress.add_task("", total=None, stored=0, duplicates=0)

        def show(row: Any) -> None:
            done, total = _done(row)
            progress.update(
                bar, completed=done, total=total, stored=row["stored"], duplicates=row["duplicates"]
            )

        yield show


class _ReplayLines:
    """Writes a line when it has begun, and now and then."""

    def __init__(self) -> None:
        self._due_at = 0.0

    def __call__(self, row: Any) -> None:
        """Show how far it is, if it is time to."""
        done, total = _done(row)
        if total is None or time.monotonic() < self._due_at:
            return
        self._due_at = time.monotonic() + _PLAIN_EVERY_SECONDS
        failure.note(
            f"{100 * done // max(1, total)} % of the log's stretch: {row['stored']} stored anew,"
            f" {row['duplicates']} known to the broker"
        )


def _done(row: Any) -> tuple[int, int | None]:
    """Return how many rows of the log are behind it, and of how many: None while nobody knows."""
    if row["up_to_seq"] is None:
        return 0, None
    return row["after_seq"] - row["first_seq"] + 1, max(0, row["up_to_seq"] - row["first_seq"] + 1)


def _conclude(row: Any) -> None:
    text(f"{row['stored']} stored anew, {row['duplicates']} dropped by the broker as duplicates")
    if row["duplicates"]:
        failure.note("the broker drops what it has stored within its duplicate window: later it takes them")
