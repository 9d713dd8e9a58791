"""`grns operation …`: bulk operations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import click

from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import Column, Output, details, document, output_option
from grns.cli.progress import follow
from grns.cli.session import CliSession, paged, with_session
from grns.errors import WaitTimeoutError
from grns.model.subjects import RELAY_NUDGE
from grns.operations import service
from grns.operations.model import ENDED, State
from grns.operations.service import Operation
from grns.postgres.paging import Page

_LIST = "grns operation list"
_SHOW = "grns operation show {number}"

Change = Callable[..., Awaitable[Operation]]

_NUMBER = click.argument("number", metavar="NUMBER", type=option.Whole(1, 2**62, code="bad_operation"))
_COLUMNS = (
    Column("NUMBER", "id"),
    Column("ACTION", "action"),
    Column("STATE", "state", is_status=True),
    Column("MOVED", lambda row: f"{row.moved}/{row.matched}{'' if row.is_exact else '+'}"),
    Column("SKIPPED", "skipped", spare=3),
    Column("AGAIN", "failed_again", spare=4),
    Column("FILTER", "filter", may_shrink=True),
    Column("BY", "created_by", may_shrink=True, spare=2),
    Column("CREATED", "created_at", is_age=True, spare=1),
)


@click.group(cls=Group)
def operation() -> None:
    """Show, pause, resume and cancel bulk operations."""


@operation.command(
    "list", examples=["grns operation list", "grns operation list --state running --state paused"]
)
@option.states_option([state.value for state in State])
@paged(_COLUMNS, nothing="no such operations", cursor=option.Whole(2, 2**62, code="bad_cursor"))
async def list_operations(session: CliSession, states: tuple[str, ...], **given: Any) -> Page[Operation]:
    """List operations, the latest first."""
    chosen = [State(state) for state in states] or None
    return await service.list_operations(
        session.database, workspace=session.workspace, states=chosen, **given
    )


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
    """Watch an operation until it ends. Exit code 0: done, 1: cancelled or paused, 6: timeout."""
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
        failure.print_error(f"operation {number} is {ended.state.value}", hint)
        raise click.exceptions.Exit(failure.FAILED)


async def _until_end(session: CliSession, number: int) -> Operation:
    def shown(now: Operation) -> tuple[int, int | None, str]:
        counts = f"{now.state.value}: {now.moved:,} moved, {now.skipped:,} skipped"
        return now.moved + now.skipped, now.matched if now.is_exact else None, counts

    ended: Operation = await follow(
        lambda: service.read_operation(session.database, number, workspace=session.workspace),
        shown,
        has_ended=lambda now: now.state in ENDED or now.state is State.PAUSED,
        is_waiting=lambda now: now.state is State.PENDING,
        hint="does an operations daemon run (grns daemon operations)?",
    )
    return ended


def _add(verb: str, change: Change, help_text: str, reason: str) -> None:
    """Add a command that changes an operation."""

    @operation.command(
        verb,
        help=help_text,
        examples=[f"grns operation {verb} 17", f'grns operation {verb} 17 --reason "{reason}"'],
    )
    @_NUMBER
    @option.REASON
    @output_option
    @with_session("write", missing=_LIST, conflict=_SHOW)
    async def command(session: CliSession, out: Output, number: int, reason: str | None) -> None:
        changed = await change(
            session.database, number, workspace=session.workspace, actor=session.actor, reason=reason
        )
        await session.transport.nudge(RELAY_NUDGE)
        if out.is_table:
            failure.note(f"operation {number} is {changed.state.value}")
        else:
            present(out, changed)


_add("pause", service.pause_operation, "Pause an operation.", "the supplier is down")
_add(
    "resume",
    service.resume_operation,
    "Resume an operation; after a failed canary, with all other tasks.",
    "the supplier is back",
)
_add(
    "cancel",
    service.cancel_operation,
    "Cancel an operation. Tasks that it has moved stay moved.",
    "wrong filter",
)


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
            ("pool", "agent_type"),
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
