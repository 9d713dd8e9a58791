"""Filters on the command line: the terms that lists take, and `grns filter …`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import Column, Output, output_option, when

if TYPE_CHECKING:
    from grns.cli.session import CliSession
    from grns.model.filter import Filter

_TERMS, _LIST = "grns filter terms", "grns filter list"
_NAME = click.argument("name", metavar="NAME", type=option.Token("name"))


def _completed(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from grns.model.filter import complete

    return [CompletionItem(text, help=says) for text, says in complete(incomplete)]


def filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what says which tasks are wanted, passed on as `terms`, `said` and `saved`."""
    for add in (
        click.option(
            "--saved", metavar="NAME", type=option.Token("name"), help="Also apply the saved filter NAME."
        ),
        click.option(
            "--filter",
            "said",
            metavar="FILTER",
            help="Filter expression, ANDed with the TERMs, such as -state:dead.",
        ),
        click.argument("terms", metavar="[TERM]...", nargs=-1, shell_complete=_completed),
    ):
        function = add(function)
    return function


def read(*texts: str | None) -> Filter:
    """Return the filter that several texts make together."""
    from grns.errors import InvalidInputError
    from grns.model.filter import parse

    try:
        return parse(" ".join(text for text in texts if text))
    except InvalidInputError as error:
        raise failure.hinted(error, _TERMS) from error


async def together(session: CliSession, wanted: Filter, saved: str | None) -> Filter:
    """Return a filter and what was saved under a name as one."""
    from grns.errors import NotFoundError
    from grns.tasks import saved_filters as saved_filter

    if saved is None:
        return wanted
    try:
        kept = await saved_filter.read(session.database, workspace=session.workspace, name=saved)
    except NotFoundError as error:
        raise failure.hinted(error, _LIST) from error
    return read(str(kept), str(wanted))


@click.group("filter", cls=Group)
def filters() -> None:
    """List the terms of filters; save filters under a name."""


@filters.command()
@output_option
def terms(out: Output) -> None:
    """List the terms of filters."""
    from grns.model.filter_term import TERMS

    columns = [
        Column("TERM", lambda row: row["name"]),
        Column("FINDS TASKS BY", lambda row: row["says"], may_shrink=True),
        Column("AS IN", lambda row: row["example"]),
    ]
    rows = [
        {"name": kind.name, "says": kind.says, "example": kind.example, "values": kind.values}
        for kind in TERMS
    ]
    out.rows(rows, columns)
    if out.is_table:
        failure.note("all terms have to fit; of a term's values (by commas) one; -state:dead: none of them")


@filters.command()
@_NAME
@click.argument("terms", metavar="TERM...", nargs=-1, required=True, shell_complete=_completed)
@output_option
def save(out: Output, name: str, terms: tuple[str, ...]) -> None:
    """Save a filter under NAME, for --saved NAME."""
    wanted = read(*terms)

    async def act() -> None:
        from grns.cli.session import reading
        from grns.model.actor import of_process
        from grns.tasks import saved_filters as saved_filter

        async with reading() as session:
            await saved_filter.save(
                session.database,
                workspace=session.workspace,
                name=name,
                wanted=wanted,
                actor=of_process("cli"),
            )

    asyncio.run(act())
    out.record({"name": name, "text": str(wanted)}, lambda: failure.note(f"{name} is {wanted}"))


@filters.command("list")
@option.page_options(option.CursorType())
@output_option
def list_saved(out: Output, limit: int, after: str | None) -> None:
    """List saved filters."""
    from grns.cli.session import reading
    from grns.dead_letters import listing
    from grns.tasks import saved_filters as saved_filter

    async def look() -> None:
        async with reading() as session:
            page = await saved_filter.list_saved(
                session.database, workspace=session.workspace, limit=limit, after=after
            )
            now = await listing.now(session.database)
        columns = [
            Column("NAME", lambda row: row["name"]),
            Column("FILTER", lambda row: row["text"]),
            Column("SAVED", lambda row: when(row["saved_at"], now), spare=1),
            Column("BY", lambda row: row["saved_by"], may_shrink=True, spare=2),
        ]
        out.rows(page.rows, columns, next_cursor=page.next_cursor)
        out.end(page.rows, page.next_cursor, nothing="no filter is saved")

    asyncio.run(look())


@filters.command()
@_NAME
def delete(name: str) -> None:
    """Delete a saved filter."""
    from grns.cli.session import reading
    from grns.errors import NotFoundError
    from grns.model.actor import of_process
    from grns.tasks import saved_filters as saved_filter

    async def act() -> None:
        async with reading() as session:
            await saved_filter.delete(
                session.database, workspace=session.workspace, name=name, actor=of_process("cli")
            )

    try:
        asyncio.run(act())
    except NotFoundError as error:
        raise failure.hinted(error, _LIST) from error
