"""`grns dlq list`, `show` and `export`. Dead tasks are redriven and discarded by `grns task`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import click

from grns.cli import failure, option
from grns.cli.detail import show_task
from grns.cli.filter import filter_options, read_filter, with_saved
from grns.cli.group import Command
from grns.cli.output import JSONL, Cell, Column, Output, details, document, heading, output_option, text
from grns.cli.session import CliSession, with_session
from grns.dead_letters import listing
from grns.dead_letters import message as messages
from grns.dead_letters.listing import MESSAGE, DeadFilter
from grns.dead_letters.message import DeadLetterDocument, DeadMessage
from grns.errors import InvalidInputError, NotFoundError
from grns.model.filter import Filter
from grns.model.task import Task
from grns.model.text import sized
from grns.operations import model
from grns.tasks import read, search

_LIST = "grns dlq list"
_EXPORT_PAGE = 100
_SHOWN_BYTES = 4096
_HEX_WIDTH = 16

_COLUMNS = (
    Column("ID", "id"),
    Column("WHAT", "what", spare=2),
    Column("TYPE / SUBJECT", "name", may_shrink=True),
    Column("STATUS", "status", is_status=True),
    Column("REASON", "reason", may_shrink=True),
    Column("WHEN", "at", is_age=True, spare=1),
    Column("ATTEMPTS", "attempts", spare=3),
)
_MESSAGE: Sequence[tuple[str, Cell]] = (
    ("id", "id"),
    ("state", "state"),
    ("reason", "reason"),
    ("detail", "detail"),
    ("subject", "subject"),
    ("stream", lambda row: f"{row.stream} #{row.stream_seq}"),
    ("deliveries", "delivery_count"),
    ("workspace", "workspace"),
    ("created", "created_at"),
    ("changed", "updated_at"),
    ("sha256", "body_sha256"),
)


@click.command(
    "list", cls=Command, examples=["grns dlq list", "grns dlq list --what task 'type:fetch_*' 'age:<1h'"]
)
@filter_options
@click.option("--what", type=click.Choice(["task", "message"]), help="Only tasks, or only messages.")
@option.TASK_TYPE
@option.page_options(option.CURSOR)
@output_option
def list_dead(query: Filter, task_type: str | None, what: str | None, **given: Any) -> None:
    """List dead tasks, failed tasks and rejected messages, the latest first.

    With TERMs, list only tasks that match: type:fetch_*, error:Timeout*, age:<1h; see `grns task filter
    terms`.
    """
    query = read_filter(str(query), task_type and f"type:{task_type}")
    DeadFilter(what, query)  # reports a contradiction before a connection is opened
    _list(query=query, what=what, **given)


@with_session("read")
async def _list(
    session: CliSession,
    out: Output,
    query: Filter,
    what: str | None,
    saved: str | None,
    limit: int,
    after: str | None,
) -> None:
    page = await listing.list_dead(
        session.database,
        workspace=session.workspace,
        wanted=DeadFilter(what, await with_saved(session, query, saved)),
        limit=limit,
        after=after,
    )
    out.page(page, _COLUMNS, nothing="no dead letters", now=await session.now())


@click.command(cls=Command, examples=["grns dlq show ID", "grns dlq show MESSAGE_ID --raw > body"])
@click.argument("dead_letter_id", metavar="ID", type=option.TASK_ID)
@click.option("--raw", "is_raw", is_flag=True, help="Write the message's raw bytes to a file or pipe.")
@output_option
@with_session("read", missing=_LIST)
async def show(session: CliSession, out: Output, dead_letter_id: str, is_raw: bool) -> None:
    """Show a rejected message with its bytes, or a dead task."""
    try:
        message = await session.triage.message(UUID(dead_letter_id))
    except (ValueError, NotFoundError):
        if is_raw:
            raise InvalidInputError(
                "bad_option", f"--raw is for messages, and {dead_letter_id} is not one"
            ) from None
        await show_task(session, out, dead_letter_id)
        return
    if not is_raw:
        out.record(messages.document(message), lambda: _draw(message))
        return
    if sys.stdout.isatty():
        raise InvalidInputError("bad_option", "--raw could harm a terminal: write to a file or a pipe")
    sys.stdout.buffer.write(message.body)


def _draw(message: DeadMessage) -> None:
    body = message.body
    details(message, _MESSAGE)
    if message.headers:
        document("headers", message.headers)
    part = f", its first {sized(_SHOWN_BYTES)}" if len(body) > _SHOWN_BYTES else ""
    heading(f"body ({sized(len(body))}{part})")
    is_text = messages.text(body) is not None
    beginning = body[:_SHOWN_BYTES]
    for line in beginning.decode(errors="ignore").split("\n") if is_text else _hexadecimal(beginning):
        text(f"  {line}")


def _hexadecimal(body: bytes) -> list[str]:
    lines = []
    for start in range(0, len(body), _HEX_WIDTH):
        part = body[start : start + _HEX_WIDTH]
        characters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<{3 * _HEX_WIDTH}} {characters}")
    return lines


Export = Callable[[CliSession, str | None], Awaitable[tuple[Sequence[Task | DeadLetterDocument], str | None]]]


@click.command(
    cls=Command,
    examples=[
        "grns dlq export --filter type:fetch_page > dead.jsonl",
        "grns dlq export --messages > rejected.jsonl",
    ],
)
@click.option(
    "--filter",
    "expression",
    metavar="FILTER",
    default="",
    help="Only tasks that match this filter, such as type:fetch_page.",
)
@click.option("--messages", "is_messages", is_flag=True, help="Only rejected messages.")
@click.option(
    "--after", metavar="CURSOR", help="Continue after an earlier export: the cursor that it printed."
)
def export(expression: str, is_messages: bool, after: str | None) -> None:
    """Write dead and failed tasks, or rejected messages, as JSON lines, the latest first.

    If the export is interrupted, it prints the cursor to continue from: no line is written twice.
    """
    if is_messages and expression:
        raise click.UsageError("--filter selects tasks, and --messages are not tasks")
    # What needs attention is what can be redriven.
    query = "" if is_messages else model.request(action="redrive", filter=expression).filter
    _export(_export_messages if is_messages else partial(_export_tasks, query), after)


@with_session("read")
async def _export(session: CliSession, read_page: Export, after: str | None) -> None:
    out, count, has_more = Output(JSONL), 0, True
    try:
        while has_more:
            rows, cursor = await read_page(session, after)
            out.rows(rows)
            sys.stdout.flush()
            count += len(rows)
            after, has_more = cursor, cursor is not None
    finally:
        if has_more and after is not None:
            failure.note(f"interrupted; continue with --after {after}")
    failure.note(f"{count} exported")


async def _export_tasks(
    query: str, session: CliSession, after: str | None
) -> tuple[Sequence[Task | DeadLetterDocument], str | None]:
    page = await search.list_tasks(
        session.database,
        workspace=session.workspace,
        wanted=read_filter(query),
        limit=_EXPORT_PAGE,
        after=after,
    )
    ids = [task.id for task in page.rows]
    tasks = await read.tasks(session.database, ids, session.workspace) if ids else {}
    return [tasks[task_id] for task_id in ids if task_id in tasks], page.next_cursor


async def _export_messages(
    session: CliSession, after: str | None
) -> tuple[Sequence[Task | DeadLetterDocument], str | None]:
    page = await listing.list_dead(
        session.database,
        workspace=session.workspace,
        wanted=DeadFilter(MESSAGE),
        limit=_EXPORT_PAGE,
        after=after,
    )
    rows = [
        await listing.read_message(session.database, UUID(row.id), session.workspace) for row in page.rows
    ]
    return [messages.document(row) for row in rows if row is not None], page.next_cursor
