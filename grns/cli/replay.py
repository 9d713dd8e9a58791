"""`grns events replay`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import click

from grns.cli import failure, option
from grns.cli.group import Command
from grns.cli.output import Output, output_option, text
from grns.cli.progress import follow
from grns.cli.session import CliSession, with_session
from grns.errors import ConflictError, InvalidInputError, WaitTimeoutError
from grns.model.subjects import RELAY_NUDGE
from grns.outbox import replay as store
from grns.postgres.database import Database

_DAY_SECONDS = 86_400.0
_EVERYTHING = ("^(evt|dlq)[.]",)


@click.command(
    cls=Command,
    examples=[
        "grns events replay --since 2h --until 1h",
        "grns events replay --since 2026-01-31T12:00:00Z --kind 'evt.task.*'",
    ],
)
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
    "--include-forgotten",
    "is_forgotten",
    is_flag=True,
    help="Include events older than the deduplication history: handlers may run twice.",
)
@option.timeout_option
@output_option
def replay(since: float | datetime, until: float | datetime | None, **given: Any) -> None:
    """Publish the events and dead letters of a time range again.

    The relay publishes them in the background; new messages come first. This command shows the progress, and
    Ctrl-C withdraws the rest. Messages keep their ids: the broker drops those within its duplicate window (10
    minutes on streams that grns created), and subscribers get the others once more.

    Event handlers remember what they handled (processed_retention_days, by default as long as the event log)
    and skip it. Pass --include-forgotten for older events.

    Commands cannot be replayed: workers find their tasks in PostgreSQL.
    """
    end = 0.0 if until is None else until
    are_ago = isinstance(since, float) and isinstance(end, float) and since <= end
    are_times = isinstance(since, datetime) and isinstance(end, datetime) and since >= end
    if are_ago or are_times:
        raise click.BadParameter("must be before --until", param_hint="--since")
    _replay(since=since, until=end, **given)


@with_session("write")
async def _replay(
    session: CliSession,
    out: Output,
    since: float | datetime,
    until: float | datetime,
    kinds: Sequence[str],
    is_everywhere: bool,
    is_forgotten: bool,
    timeout: float | None,
) -> None:
    days = session.app.settings.remembered_days
    if is_forgotten:
        failure.note(f"event handlers handle again what they handled more than {days:g} days ago")
    request = store.request(
        session.database,
        workspace=None if is_everywhere else session.workspace,
        patterns=[_expression(kind) for kind in kinds] or _EVERYTHING,
        since=since,
        until=until,
        remembered_seconds=None if is_forgotten else days * _DAY_SECONDS,
    )
    async with _requested(session.database, request, days) as number:
        await session.transport.nudge(RELAY_NUDGE)
        try:
            async with asyncio.timeout(timeout):
                row = await _until_done(session.database, number)
        except TimeoutError as error:
            late = f"replay {number} was not done in time, and is withdrawn"
            raise WaitTimeoutError(late) from error
    record = {"replay": row["id"]} | {name: row[name] for name in ("since", "until", "stored", "duplicates")}
    out.record(record, lambda: _conclude(row))


@asynccontextmanager
async def _requested(
    database: Database, request: Coroutine[Any, Any, int], remembered_days: float
) -> AsyncIterator[int]:
    """Request a replay, and withdraw at the end what is not done of it, after Ctrl-C too."""
    requesting = asyncio.ensure_future(request)
    try:
        number = await asyncio.shield(requesting)
    except asyncio.CancelledError:
        await store.withdraw(database, await requesting)
        raise
    except ConflictError as error:
        raise failure.hinted(
            ConflictError(
                f"{error}: {remembered_days:g} days; --include-forgotten lets them handle it again"
            ),
            f"grns events replay --since {remembered_days:g}d",
        ) from error
    except InvalidInputError as error:
        raise failure.hinted(error, "grns events replay --since 2h --until 1h") from error
    try:
        yield number
    finally:
        await store.withdraw(database, number)  # does nothing to a replay that is done


def _expression(kind: str) -> str:
    """Return a kind as a regular expression: a `*` stands for one word."""
    return "^" + "[.]".join("[^.]+" if word == "*" else re.escape(word) for word in kind.split(".")) + "$"


async def _until_done(database: Database, number: int) -> Any:
    def shown(row: Any) -> tuple[int, int | None, str]:
        counts = f"{row['stored']:,} stored anew, {row['duplicates']:,} dropped as duplicates"
        if row["up_to_seq"] is None:
            return 0, None, counts
        total = max(0, row["up_to_seq"] - row["first_seq"] + 1)
        return row["after_seq"] - row["first_seq"] + 1, total, counts

    row = await follow(
        lambda: store.progress(database, number),
        shown,
        has_ended=lambda row: row["outcome"] is not None,
        is_waiting=lambda row: row["started_at"] is None,
        hint="does a relay run (grns daemon relay), or is another replay before this?",
    )
    if row["outcome"] != "done":
        raise ConflictError(f"replay {number} was withdrawn by another process")
    return row


def _conclude(row: Any) -> None:
    text(f"{row['stored']} stored anew, {row['duplicates']} dropped by the broker as duplicates")
    if row["duplicates"]:
        failure.note(
            "the broker drops messages that it stored within its duplicate window; later it takes them"
        )
