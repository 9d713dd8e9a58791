"""`grns operation …`: bulk operations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict

import click

from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import Column, Output, details, document, output_option
from grns.cli.progress import progress
from grns.cli.session import CliSession, with_session
from grns.errors import WaitTimeoutError
from grns.model.subjects import RELAY_NUDGE
from grns.operations import service
from grns.operations.model import ENDED, State
from grns.operations.service import Operation

_LIST = "grns operation list"
_SHOW = "grns operation show {number}"
_LOOK_SECONDS = 0.25
_LONG_SECONDS = 5.0

_NUMBER = click.argument("number", metavar="NUMBER", type=option.Whole(1, 2**62, code="bad_operation"))
_COLUMNS = (
    Column("NUMBER", "id"),
    Column("ACTION", "action"),
    Column("STATE", "state", is_status=True),
    Column("MOVED", lambda row: f"{row['moved']}/{row['matched']}{'' if row['is_exact'] else '+'}"),
    Column("SKIPPED", "skipped", spare=3),
    Column("AGAIN", "failed_again", spare=4),
    Column("FILTER", "filter", may_shrink=True),
    Column("BY", "created_by", may_shrink=True, spare=2),
    Column("CREATED", "created_at", is_age=True, spare=1),
)


@click.group(cls=Group)
def operation() -> None:
    """Show, pause, resume and abort bulk operations."""


@operation.command(
    "list", examples=["grns operation list", "grns operation list --state running --state paused"]
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in State]),
    help="Only those in this state. Repeatable.",
)
@option.page_options(option.Whole(2, 2**62, code="bad_cursor"))
@output_option
@with_session("read")
async def list_operations(
    session: CliSession, out: Output, limit: int, after: int | None, states: tuple[str, ...]
) -> None:
    """List operations, the latest first."""
    page = await service.list_operations(
        session.database,
        workspace=session.workspace,
        states=[State(state) for state in states] or None,
        limit=limit,
        after=after,
    )
    rows = [asdict(row) for row in page.operations]
    out.page(rows, _COLUMNS, page.next_cursor, nothing="no such operations", now=await session.now())


@operation.command(examples=["grns operation show 17", "grns operation show 17 -o json"])
@_NUMBER
@output_option
@with_session("read", missing=_LIST)
async def show(session: CliSession, out: Output, number: int) -> None:
    """Show an operation with its progress and outcome."""
    present(out, await service.read_operation(session.database, number, workspace=session.workspace))


@operation.command(examples=["grns operation watch 17", "grns operation watch 17 --timeout 10m"])
@_NUMBER
@option.timeout_option
@output_option
@with_session("read", missing=_LIST)
async def watch(session: CliSession, out: Output, number: int, timeout: float | None) -> None:
    """Watch an operation until it ends. Exit code 0: done, 1: aborted or paused, 6: timeout."""
    await watch_operation(session, out, number, timeout)


async def watch_operation(session: CliSession, out: Output, number: int, timeout: float | None) -> None:
    """Wait until an operation has ended or is paused, show it, and exit with its code."""
    try:
        async with asyncio.timeout(timeout):
            ended = await _until_end(session, number)
    except TimeoutError as error:
        late = WaitTimeoutError(f"operation {number} was not done in time; it continues")
        raise failure.hinted(late, _SHOW.format(number=number)) from error
    present(out, ended)
    if ended.state is not State.DONE:
        hint = f"grns operation resume {number}" if ended.state is State.PAUSED else _LIST
        failure.say(f"operation {number} is {ended.state.value}", hint)
        raise click.exceptions.Exit(failure.FAILED)


async def _until_end(session: CliSession, number: int) -> Operation:
    started_at, is_noted = time.monotonic(), False
    with progress() as show:
        while True:
            now = await service.read_operation(session.database, number, workspace=session.workspace)
            total = now.matched if now.is_exact else None
            counts = f"{now.state.value}: {now.moved:,} moved, {now.skipped:,} skipped"
            show(now.moved + now.skipped, total, counts)
            if now.state in ENDED or now.state is State.PAUSED:
                return now
            is_late = now.state is State.PENDING and time.monotonic() - started_at > _LONG_SECONDS
            if is_late and not is_noted:
                failure.note("not started yet: does an operations daemon run (grns daemon operations)?")
                is_noted = True
            await asyncio.sleep(_LOOK_SECONDS)


@operation.command(
    examples=["grns operation pause 17", 'grns operation pause 17 --reason "the supplier is down"']
)
@_NUMBER
@option.REASON
@output_option
@with_session("write", missing=_LIST, conflict=_SHOW)
async def pause(session: CliSession, out: Output, number: int, reason: str | None) -> None:
    """Pause an operation."""
    await _change(session, out, number, reason, service.pause_operation)


@operation.command(
    examples=["grns operation resume 17", 'grns operation resume 17 --reason "the supplier is back"']
)
@_NUMBER
@option.REASON
@output_option
@with_session("write", missing=_LIST, conflict=_SHOW)
async def resume(session: CliSession, out: Output, number: int, reason: str | None) -> None:
    """Resume an operation; after a failed canary, with all other tasks."""
    await _change(session, out, number, reason, service.resume_operation)


@operation.command(examples=["grns operation abort 17", 'grns operation abort 17 --reason "wrong filter"'])
@_NUMBER
@option.REASON
@output_option
@with_session("write", missing=_LIST, conflict=_SHOW)
async def abort(session: CliSession, out: Output, number: int, reason: str | None) -> None:
    """Abort an operation. Tasks that it has moved stay moved."""
    await _change(session, out, number, reason, service.abort_operation)


async def _change(
    session: CliSession,
    out: Output,
    number: int,
    reason: str | None,
    change: Callable[..., Awaitable[Operation]],
) -> None:
    changed = await change(
        session.database, number, workspace=session.workspace, actor=session.actor, reason=reason
    )
    await session.transport.nudge(RELAY_NUDGE)
    if out.is_table:
        failure.note(f"operation {number} is {changed.state.value}")
    else:
        present(out, changed)


def present(out: Output, shown: Operation) -> None:
    """Show one operation."""
    out.record({**asdict(shown), "outstanding": shown.outstanding}, lambda: _draw(shown))


def _draw(shown: Operation) -> None:
    is_redrive = shown.action.value == "redrive"
    details(
        shown,
        [
            ("number", "id"),
            ("action", "action"),
            ("status", "state"),
            ("because", "state_reason"),
            ("filter", "filter"),
            ("workspace", "workspace"),
            ("created by", "created_by"),
            ("created at", "created_at"),
            ("reason", "reason"),
            ("rate", lambda one: one.rate_per_minute and f"{one.rate_per_minute:g} a minute"),
            ("agent type", "agent_type"),
            ("canary", lambda one: one.canary_task_id or ("yes" if one.canary else None)),
            ("tasks", lambda one: f"{one.matched}" if one.is_exact else f"{one.matched} or more"),
            ("moved", "moved"),
            ("skipped", _skipped),
            ("succeeded", lambda one: one.succeeded if is_redrive else None),
            ("failed again", lambda one: one.failed_again if is_redrive else None),
            ("ended otherwise", lambda one: one.ended_otherwise or None),
            ("not ended yet", lambda one: one.outstanding if is_redrive else None),
            ("ended at", "ended_at"),
        ],
    )
    if shown.patch is not None:
        document("patch", shown.patch)


def _skipped(shown: Operation) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(shown.skipped_by.items()))
    return f"{shown.skipped} ({reasons})" if reasons else "0"
