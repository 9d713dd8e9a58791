"""Filters on the command line: the terms that lists take, and `grns task filter …`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click
from click.shell_completion import CompletionItem

from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import Column, Output, output_option
from grns.cli.session import CliSession, paged, with_session
from grns.errors import InvalidInputError, NotFoundError
from grns.model import filter as grammar
from grns.model.filter import Filter
from grns.model.filter_kinds import TERMS
from grns.postgres.paging import Page
from grns.tasks import saved_filters
from grns.tasks.saved_filters import SavedFilter

_FIELDS, _LIST = "grns task filter fields", "grns task filter list"

_NAME = click.argument("name", metavar="NAME", type=option.Token("name"))
SAVED = click.option(
    "--saved-filter",
    "saved",
    metavar="NAME",
    type=option.Token("name"),
    help="Also apply the saved filter NAME.",
)
_SAVED_COLUMNS = (
    Column("NAME", "name"),
    Column("FILTER", "text"),
    Column("SAVED", "saved_at", is_age=True, spare=1),
    Column("BY", "saved_by", may_shrink=True, spare=2),
)
_TERM_COLUMNS = (
    Column("TERM", "name"),
    Column("FINDS TASKS BY", "says", may_shrink=True),
    Column("EXAMPLE", "example"),
)


def _completed(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(text, help=says) for text, says in grammar.complete(incomplete)]


def filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add TERMs, `--filter` and `--saved-filter`, passed on as `query` (a `Filter`) and `saved`."""

    @wraps(function)
    def call(*args: Any, terms: Sequence[str], expression: str | None, **kwargs: Any) -> Any:
        return function(*args, query=read_filter(*terms, expression), **kwargs)

    return option.together(
        click.argument("terms", metavar="[TERM]...", nargs=-1, shell_complete=_completed),
        click.option(
            "--filter",
            "expression",
            metavar="FILTER",
            help="Filter expression, ANDed with the TERMs, such as -status:dead.",
        ),
        SAVED,
    )(call)


def read_filter(*texts: str | None) -> Filter:
    """Return the filter of several texts together."""
    try:
        return grammar.parse(" ".join(text for text in texts if text))
    except InvalidInputError as error:
        raise failure.hinted(error, _FIELDS) from error


async def with_saved(session: CliSession, query: Filter, saved: str | None) -> Filter:
    """Return a filter together with the one that was saved as `saved`, if any."""
    if saved is None:
        return query
    try:
        kept = await saved_filters.read(session.database, workspace=session.workspace, name=saved)
    except NotFoundError as error:
        raise failure.hinted(error, _LIST) from error
    return read_filter(str(kept), str(query))


@click.group("filter", cls=Group)
def filters() -> None:
    """List the fields of filters; save filters under a name."""


@filters.command(examples=["grns task filter fields", "grns task filter fields -o json"])
@output_option
def fields(out: Output) -> None:
    """List the fields of filters."""
    rows = [
        {"name": kind.name, "says": kind.says, "example": kind.example, "values": kind.values}
        for kind in TERMS
    ]
    out.rows(rows, _TERM_COLUMNS)
    if out.is_table:
        failure.note("a task must match each term, by one of its values (a,b); -status:dead: by none of them")


@filters.command(
    examples=[
        "grns task filter save flaky status:dead 'error:Timeout*'",
        "grns task filter save old 'status:queued age:>1d'",
    ]
)
@_NAME
@click.argument(
    "query",
    metavar="TERM...",
    nargs=-1,
    required=True,
    shell_complete=_completed,
    callback=lambda _ctx, _param, terms: read_filter(*terms),
)
@output_option
@with_session("read")
async def save(session: CliSession, out: Output, name: str, query: Filter) -> None:
    """Save a filter under NAME, for --saved-filter NAME."""
    await saved_filters.save(
        session.database, workspace=session.workspace, name=name, wanted=query, actor=session.actor
    )
    out.record({"name": name, "text": str(query)}, lambda: failure.note(f"{name} is {query}"))


@filters.command("list", examples=["grns task filter list", "grns task filter list -o json"])
@paged(_SAVED_COLUMNS, nothing="no saved filters")
async def list_saved(session: CliSession, **page: Any) -> Page[SavedFilter]:
    """List saved filters."""
    return await saved_filters.list_saved(session.database, workspace=session.workspace, **page)


@filters.command(examples=["grns task filter delete flaky", "grns task filter delete flaky --workspace acme"])
@_NAME
@with_session("read", missing=_LIST)
async def delete(session: CliSession, name: str) -> None:
    """Delete a saved filter."""
    await saved_filters.delete(session.database, workspace=session.workspace, name=name, actor=session.actor)
