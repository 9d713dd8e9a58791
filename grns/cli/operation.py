"""`grns operation …`: what is being done, or was, to many tasks at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import Column, Output, document, fields, output_option, when

if TYPE_CHECKING:
    from grns.operations.service import Operation

_NUMBER = click.argument("number", metavar="NUMBER", type=option.Whole(1, 2**62, code="bad_operation"))
_REASON = click.option("--reason", help="Reason, kept with the operation and in the event log.")
_LIST = "grns operation list"
_STATES = ("pending", "canary", "running", "paused", "done", "aborted", "failed")

Change = Callable[..., Awaitable["Operation"]]


@click.group(cls=Group)
def operation() -> None:
    """Show, pause, resume and abort bulk operations."""


@operation.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES),
    help="Only those in this state. Repeatable.",
)
@option.page_options(option.Whole(2, 2**62, code="bad_cursor"))
@output_option
def list_operations(out: Output, limit: int, after: int | None, states: tuple[str, ...]) -> None:
    """List operations, the latest first."""
    asyncio.run(_list(out, limit, after, states))


async def _list(out: Output, limit: int, after: int | None, states: tuple[str, ...]) -> None:
    from grns.cli.session import reading
    from grns.dead_letters import listing
    from grns.operations import service as store
    from grns.operations.model import State

    async with reading() as session:
        page = await store.list_operations(
            session.database,
            workspace=session.workspace,
            states=[State(state) for state in states] or None,
            limit=limit,
            after=after,
        )
        now = await listing.now(session.database)
    columns = [
        Column("NUMBER", lambda row: row["id"]),
        Column("ACTION", lambda row: row["action"]),
        Column("STATE", lambda row: row["state"].value, is_status=True),
        Column("MOVED", lambda row: f"{row['moved']}/{row['matched']}{'' if row['is_exact'] else '+'}"),
        Column("SKIPPED", lambda row: row["skipped"], spare=3),
        Column("AGAIN", lambda row: row["failed_again"], spare=4),
        Column("FILTER", lambda row: row["filter"], may_shrink=True),
        Column("BY", lambda row: row["created_by"], may_shrink=True, spare=2),
        Column("ASKED", lambda row: when(row["created_at"], now), spare=1),
    ]
    rows = [asdict(one) for one in page.operations]
    out.rows(rows, columns, next_cursor=page.next_cursor)
    out.end(rows, None if page.next_cursor is None else str(page.next_cursor), nothing="no such operations")


@operation.command()
@_NUMBER
@output_option
def show(out: Output, number: int) -> None:
    """Show an operation with its progress and outcome."""

    async def look() -> Operation:
        from grns.cli.session import reading
        from grns.operations import service as store

        async with reading() as session:
            return await store.read_operation(session.database, number, workspace=session.workspace)

    with failure.hinting(missing=_LIST):
        present(out, asyncio.run(look()))


@operation.command()
@_NUMBER
@option.timeout_option
@output_option
def watch(out: Output, number: int, timeout: float | None) -> None:
    """Watch an operation until it ends. Exit code 0: done, 1: aborted or paused, 6: timeout."""
    from grns.cli.watch import watch as look_on

    with failure.hinting(missing=_LIST):
        look_on(out, number, timeout)


@operation.command()
@_NUMBER
@_REASON
@output_option
def pause(out: Output, number: int, reason: str | None) -> None:
    """Pause an operation."""
    from grns.operations.service import pause_operation

    _change(out, number, reason, pause_operation)


@operation.command()
@_NUMBER
@_REASON
@output_option
def resume(out: Output, number: int, reason: str | None) -> None:
    """Resume an operation; after a failed canary, with all other tasks."""
    from grns.operations.service import resume_operation

    _change(out, number, reason, resume_operation)


@operation.command()
@_NUMBER
@_REASON
@output_option
def abort(out: Output, number: int, reason: str | None) -> None:
    """Abort an operation. Tasks that it has moved stay moved."""
    from grns.operations.service import abort_operation

    _change(out, number, reason, abort_operation)


def _change(out: Output, number: int, reason: str | None, change: Change) -> None:
    async def act() -> Operation:
        from grns.cli.session import writing
        from grns.model.actor import of_process
        from grns.model.subjects import RELAY_NUDGE

        async with writing() as session:
            changed = await change(
                session.database, number, workspace=session.workspace, actor=of_process("cli"), reason=reason
            )
            await session.transport.nudge(RELAY_NUDGE)
            return changed

    with failure.hinting(missing=_LIST, conflict=f"grns operation show {number}"):
        changed = asyncio.run(act())
    if out.is_table:
        failure.note(f"operation {number} is {changed.state.value}")
    else:
        present(out, changed)


def present(out: Output, found: Operation) -> None:
    """Show one operation."""
    record: dict[str, Any] = {**asdict(found), "outstanding": found.outstanding}
    out.record(record, lambda: _draw(found))


def _draw(found: Operation) -> None:
    matched = f"{found.matched}" if found.is_exact else f"{found.matched} or more"
    rate = None if found.rate_per_minute is None else f"{found.rate_per_minute:g} a minute"
    is_redrive = found.action.value == "redrive"
    fields(
        [
            ("number", found.id),
            ("action", found.action.value),
            ("status", found.state.value),
            ("because", found.state_reason),
            ("filter", found.filter),
            ("workspace", found.workspace),
            ("asked by", found.created_by),
            ("asked at", found.created_at),
            ("reason", found.reason),
            ("rate", rate),
            ("agent type", found.agent_type),
            ("canary", found.canary_task_id or ("yes" if found.canary else None)),
            ("tasks", matched),
            ("moved", found.moved),
            ("skipped", _skips(found)),
            ("succeeded", found.succeeded if is_redrive else None),
            ("failed again", found.failed_again if is_redrive else None),
            ("ended otherwise", found.ended_otherwise or None),
            ("not ended yet", found.outstanding if is_redrive else None),
            ("ended at", found.ended_at),
        ]
    )
    if found.patch is not None:
        document("patch", found.patch)


def _skips(found: Operation) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(found.skipped_by.items()))
    return f"{found.skipped} ({reasons})" if reasons else "0"
