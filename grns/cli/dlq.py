"""`grns dlq …`: tasks that are dead or failed, and messages that belong to no task, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from grns.cli import failure, option
from grns.cli.filter import filter_options, read, together
from grns.cli.group import Noun
from grns.cli.output import Column, Output, output_option
from grns.cli.text import counted

if TYPE_CHECKING:
    from grns.store.listing import DeadFilter
    from grns.store.page import Page
    from grns.store.task_page import Count

_IDS = click.argument("ids", metavar="[ID...]", nargs=-1, type=option.TASK_ID)
_ALL = click.option("--all", "is_all", is_flag=True, help="All of them, as `list` shows them.")
_TYPE = click.option(
    "--type", "task_type", metavar="TYPE", type=option.Token("task_type"), help="Only tasks of this type."
)
_NOTHING = "nothing"
_WHAT = click.option("--what", type=click.Choice(["task", "message"]), help="Only tasks, or only messages.")


@click.group(cls=Noun)
def dlq() -> None:
    """Look through dead letters; redrive or discard them."""


@dlq.command("list")
@filter_options
@_WHAT
@_TYPE
@option.page_options(option.Cursor())
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
    """List dead and failed tasks, and rejected messages, the latest first.

    With TERMs only the tasks that they fit: type:fetch_*, error:Timeout*, age:<1h; see `grns filter terms`.
    """
    from grns.store import listing

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
    from grns.cli.text import ago

    columns = [
        Column("ID", lambda row: row["id"]),
        Column("WHAT", lambda row: row["what"], spare=1),
        Column("TYPE / SUBJECT", lambda row: row["name"], may_shrink=True),
        Column("STATUS", lambda row: row["status"], is_status=True),
        Column("REASON", lambda row: row["reason"], may_shrink=True),
        Column("WHEN", lambda row: ago(row["at"], now), spare=2),
        Column("ATTEMPTS", lambda row: row["attempts"], spare=3),
    ]
    out.rows(page.rows, columns, next_cursor=page.next_cursor, is_partial=page.is_partial)
    out.end(page.rows, page.next_cursor, nothing="no dead letters", is_partial=page.is_partial)


@dlq.command()
@click.argument("letter_id", metavar="ID", type=option.TASK_ID)
@click.option("--raw", "is_raw", is_flag=True, help="Write a message's bytes as they are, to a file or pipe.")
@output_option
def show(out: Output, letter_id: str, is_raw: bool) -> None:
    """Show a dead task, or a message with the bytes that came."""
    from grns.cli.message import show_letter

    asyncio.run(show_letter(out, letter_id, is_raw=is_raw))


@dlq.command()
@_IDS
@_ALL
@_WHAT
@_TYPE
@option.sure_options
@output_option
def redrive(out: Output, **said: Any) -> None:
    """Run dead tasks again, and send rejected messages again. With --all they are counted first."""
    _check(said)
    if said["is_all"]:
        _all(out, said, "redrive")
    else:
        _named(out, said, "redrive")


@dlq.command()
@_IDS
@_ALL
@option.sure_options
@output_option
def discard(out: Output, **said: Any) -> None:
    """Close rejected messages. Tasks stay until their retention ends."""
    _check(said)
    if said["is_all"]:
        _all(out, said | {"what": "message", "task_type": None}, "discard")
    else:
        _named(out, said, "discard")


def _check(said: dict[str, Any]) -> None:
    if said["is_all"] == bool(said["ids"]):
        raise click.UsageError("name some ids, or say --all")
    if not said["is_all"] and (said.get("what") or said.get("task_type")):
        raise click.UsageError("--what and --type choose among all: they go with --all")


def _named(out: Output, said: dict[str, Any], verb: str) -> None:
    """Do it to what was named."""
    from grns.cli import letter
    from grns.cli.session import reading, writing

    ids: Sequence[str] = said["ids"]
    # What was named one by one is opened again without a question; to close it, there is one.
    if verb == "discard" and not said["is_trial"]:
        option.confirm(f"discard {counted(len(ids), 'message')}", is_sure=said["is_sure"])

    async def act() -> list[dict[str, str]]:
        async with reading() if said["is_trial"] else writing() as session:
            letters = letter.Letters(session)
            found = await letters.find(ids)
            if said["is_trial"]:
                return letter.plan(found, verb)
            return await (letters.redrive(found) if verb == "redrive" else letters.discard(found))

    answers = asyncio.run(act())
    letter.show(out, answers)
    letter.judge(answers)


def _all(out: Output, said: dict[str, Any], verb: str) -> None:
    """Count them, ask, and do it page by page, the latest first."""
    from grns.cli import letter
    from grns.store.listing import DeadFilter

    wanted = DeadFilter(said["what"], read(said["task_type"] and f"type:{said['task_type']}"))
    is_trial: bool = said["is_trial"]
    count = asyncio.run(_count(wanted))
    if is_trial:
        failure.note(f"would {verb} {count}")
    elif count != _NOTHING:
        option.confirm(f"{verb} {count}", is_sure=said["is_sure"])
    answers: list[dict[str, str]] = []
    try:
        asyncio.run(_each_page(wanted, verb, answers, is_trial=is_trial))
    finally:  # what was done before something went wrong is told too
        letter.show(out, answers)
    out.end(answers, None, nothing=f"nothing to {verb}")
    letter.judge(answers)


async def _each_page(wanted: DeadFilter, verb: str, answers: list[dict[str, str]], *, is_trial: bool) -> None:
    from grns.cli import letter
    from grns.cli.session import reading, writing

    async with reading() if is_trial else writing() as session:
        letters = letter.Letters(session)
        async for found in letters.pages(wanted):
            if is_trial:
                answers += letter.plan(found, verb)
            else:
                answers += await (letters.redrive(found) if verb == "redrive" else letters.discard(found))


async def _count(wanted: DeadFilter) -> str:
    from grns.cli.letter import Letters
    from grns.cli.session import reading

    async with reading() as session:
        counts = await Letters(session).count(wanted)
    return " and ".join(_told(count, what) for what, count in counts.items() if count.number) or _NOTHING


def _told(count: Count, what: str) -> str:
    return f"{'' if count.is_exact else 'at least '}{counted(count.number, what)}"
