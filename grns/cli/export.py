"""`grns dlq export`: dead letters, whole, for other programs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from grns.cli import failure
from grns.cli.group import Command
from grns.cli.output import JSONL, Output

if TYPE_CHECKING:
    from grns.cli.session import CliSession

_PAGE = 100

Part = tuple[list[dict[str, Any]], str | None]
Read = Callable[["CliSession", str | None], Awaitable[Part]]


@click.command(cls=Command)
@click.option(
    "--filter",
    "wanted",
    metavar="FILTER",
    default="",
    help="Only tasks that match this filter, such as type:fetch_page.",
)
@click.option("--messages", "is_messages", is_flag=True, help="Only rejected messages.")
@click.option(
    "--after", metavar="CURSOR", help="Continue after an earlier export: the cursor that it printed."
)
def export(wanted: str, is_messages: bool, after: str | None) -> None:
    """Write dead and failed tasks as JSON lines, the latest first.

    Where it is cut short it says how to go on; what it has written until then is written once.
    """
    if is_messages and wanted:
        raise click.UsageError("--filter chooses among tasks, and --messages are none")
    asyncio.run(_export(_messages if is_messages else partial(_tasks, _canonical(wanted)), after))


def _canonical(wanted: str) -> str:
    from grns.operations.model import request

    return request(action="redrive", filter=wanted).filter  # what needs a person is what can be redriven


async def _export(read: Read, after: str | None) -> None:
    from grns.cli.session import reading

    out, count, has_more = Output(JSONL), 0, True
    try:
        async with reading() as session:
            while has_more:
                rows, cursor = await read(session, after)
                out.rows(rows, [])
                sys.stdout.flush()
                count += len(rows)
                after, has_more = cursor, cursor is not None
    finally:
        if has_more and after is not None:
            failure.note(f"cut short; it goes on with --after {after}")
    failure.note(f"{count} exported")


async def _tasks(wanted: str, session: CliSession, after: str | None) -> Part:
    from grns.model import filter as filters
    from grns.tasks import read
    from grns.tasks.search import list_tasks

    page = await list_tasks(
        session.database, workspace=session.workspace, wanted=filters.parse(wanted), limit=_PAGE, after=after
    )
    ids = [str(row["id"]) for row in page.rows]
    whole = await read.tasks(session.database, ids, session.workspace) if ids else {}
    return [asdict(whole[task_id]) for task_id in ids if task_id in whole], page.next_cursor


async def _messages(session: CliSession, after: str | None) -> Part:
    from uuid import UUID

    from grns.dead_letters import listing
    from grns.dead_letters import message as letter

    page = await listing.list_dead(
        session.database,
        workspace=session.workspace,
        wanted=listing.DeadFilter(listing.MESSAGE),
        limit=_PAGE,
        after=after,
    )
    found = [
        await listing.read_message(session.database, UUID(row["id"]), session.workspace) for row in page.rows
    ]
    return [letter.document(one) for one in found if one is not None], page.next_cursor
