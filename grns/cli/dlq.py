"""`grns dlq …`: tasks that are dead or failed, and messages that belong to no task, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from grns.cli import bulk, failure, option
from grns.cli.export import export
from grns.cli.filter import filter_options, read, together
from grns.cli.group import Group
from grns.cli.output import Column, Output, output_option, when
from grns.cli.resend import resend
from grns.text import counted

if TYPE_CHECKING:
    from grns.postgres.paging import Page
    from grns.tasks.search import Count

_IDS = click.argument("ids", metavar="[ID...]", nargs=-1, type=option.TASK_ID)
_MESSAGES = click.option("--messages", "is_messages", is_flag=True, help="All rejected messages.")
_OF_FILTER = ("rate_per_minute", "is_detached", "canary", "agent_type")
_TYPE = click.option(
    "--type", "task_type", metavar="TYPE", type=option.Token("task_type"), help="Only tasks of this type."
)
_WHAT = click.option("--what", type=click.Choice(["task", "message"]), help="Only tasks, or only messages.")


@click.group(cls=Group)
def dlq() -> None:
    """List, redrive, discard and export dead letters."""


@dlq.command("list")
@filter_options
@_WHAT
@_TYPE
@option.page_options(option.CursorType())
@output_option
def list_dead(
    out: Output,
    limit: int,
    after: str | None,
    what: str | None,
    task_type: str | None,
    terms: Sequence[str],
    said: str | None,
    saved: str | None,
) -> None:
    """List dead tasks, failed tasks and rejected messages, the latest first.

    With TERMs, list only tasks that match: type:fetch_*, error:Timeout*, age:<1h; see `grns filter terms`.
    """
    from grns.dead_letters import listing

    wanted = read(*terms, said, task_type and f"type:{task_type}")
    listing.DeadFilter(what, wanted)  # what does not go together is said before anything is connected to

    async def look() -> None:
        from grns.cli.session import reading

        async with reading() as session:
            page = await listing.list_dead(
                session.database,
                workspace=session.workspace,
                wanted=listing.DeadFilter(what, await together(session, wanted, saved)),
                limit=limit,
                after=after,
            )
            _list(out, page, await listing.now(session.database))

    asyncio.run(look())


def _list(out: Output, page: Page, now: Any) -> None:

    columns = [
        Column("ID", lambda row: row["id"]),
        Column("WHAT", lambda row: row["what"], spare=2),
        Column("TYPE / SUBJECT", lambda row: row["name"], may_shrink=True),
        Column("STATUS", lambda row: row["status"], is_status=True),
        Column("REASON", lambda row: row["reason"], may_shrink=True),
        Column("WHEN", lambda row: when(row["at"], now), spare=1),
        Column("ATTEMPTS", lambda row: row["attempts"], spare=3),
    ]
    out.rows(page.rows, columns, next_cursor=page.next_cursor, is_partial=page.is_partial)
    out.end(page.rows, page.next_cursor, nothing="no dead letters", is_partial=page.is_partial)


@dlq.command()
@click.argument("dead_letter_id", metavar="ID", type=option.TASK_ID)
@click.option("--raw", "is_raw", is_flag=True, help="Write the message's raw bytes to a file or pipe.")
@output_option
def show(out: Output, dead_letter_id: str, is_raw: bool) -> None:
    """Show a dead task, or a rejected message with its bytes."""
    from grns.cli.message import show_letter

    asyncio.run(show_letter(out, dead_letter_id, is_raw=is_raw))


@dlq.command()
@_IDS
@_MESSAGES
@bulk.bulk_options
@bulk.redrive_options
@option.sure_options
@output_option
def redrive(out: Output, **said: Any) -> None:
    """Redrive (run again) dead tasks; send rejected messages again.

    With --patch, each payload is changed first. With --filter, all matching tasks are redriven as a bulk
    operation: it is counted first and runs in the background, at a --rate, after a --canary, for another
    pool.
    """
    _act(out, "redrive", said)


@dlq.command()
@_IDS
@_MESSAGES
@bulk.bulk_options
@option.sure_options
@output_option
def discard(out: Output, **said: Any) -> None:
    """Discard dead tasks and rejected messages: hide them from lists.

    With --filter, discard all matching tasks as a bulk operation: it is counted first and runs in the
    background.
    """
    _act(out, "discard", said)


dlq.add_command(resend)
dlq.add_command(export)


def _act(out: Output, verb: str, said: dict[str, Any]) -> None:
    """Do it to what was named, to all messages, or to the tasks that a filter finds."""
    ids, is_messages = said.pop("ids"), said.pop("is_messages")
    has_filter = said["wanted"] is not None or said["saved"] is not None
    if [bool(ids), is_messages, has_filter].count(True) != 1:
        raise click.UsageError("name some ids, or say --filter, --saved or --messages")
    if has_filter:
        bulk.run(out, verb, **said)
        return
    if any(said.get(name) for name in _OF_FILTER):
        raise click.UsageError("--rate, --detach, --canary and --agent-type go with --filter")
    if is_messages and said.get("patch") is not None:
        raise click.UsageError("--patch changes payloads of tasks: name their ids, or say --filter")
    if is_messages:
        _messages(out, said, verb)
    else:
        _named(out, ids, said, verb)


def _named(out: Output, ids: Sequence[str], said: dict[str, Any], verb: str) -> None:
    """Do it to what was named."""
    from grns.cli import dead_letter as letter
    from grns.cli.session import reading, writing

    patch = bulk.read_patch(said.get("patch"))
    # What was named one by one is opened again without a question; to set it aside, there is one.
    if verb == "discard" and not said["is_trial"]:
        option.confirm(f"discard {counted(len(ids), 'dead letter')}", is_sure=said["is_sure"])

    async def act() -> list[dict[str, str]]:
        async with reading() if said["is_trial"] else writing() as session:
            letters = letter.MessageIds(session)
            found = await letters.find(ids)
            return (
                letter.plan(found, verb)
                if said["is_trial"]
                else await letters.act(found, verb, said["reason"], patch)
            )

    answers = asyncio.run(act())
    letter.show(out, answers)
    letter.judge(answers)


def _messages(out: Output, said: dict[str, Any], verb: str) -> None:
    """Count all messages, ask, and do it page by page, the latest first."""
    from grns.cli import dead_letter as letter

    is_trial: bool = said["is_trial"]
    count = asyncio.run(_count())
    told = f"{'' if count.is_exact else 'at least '}{counted(count.number, 'message')}"
    if is_trial:
        failure.note(f"would {verb} {told}")
    elif count.number:
        option.confirm_count(f"{verb} {told}", count.number, is_sure=said["is_sure"])
    answers: list[dict[str, str]] = []
    try:
        asyncio.run(_each_page(verb, answers, said["reason"], is_trial=is_trial))
    finally:  # what was done before something went wrong is told too
        letter.show(out, answers)
    out.end(answers, None, nothing=f"nothing to {verb}")
    letter.judge(answers)


async def _each_page(verb: str, answers: list[dict[str, str]], reason: str | None, *, is_trial: bool) -> None:
    from grns.cli import dead_letter as letter
    from grns.cli.session import reading, writing

    async with reading() if is_trial else writing() as session:
        letters = letter.MessageIds(session)
        async for found in letters.messages():
            answers += letter.plan(found, verb) if is_trial else await letters.act(found, verb, reason)


async def _count() -> Count:
    from grns.cli.dead_letter import MessageIds
    from grns.cli.session import reading

    async with reading() as session:
        return await MessageIds(session).count()
