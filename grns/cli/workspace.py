"""`grns workspace …`: workspaces, and whether the database itself keeps them apart."""

from __future__ import annotations

import asyncio
import contextlib

import click

from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import Column, Output, output_option, when

_NAME = option.Token("workspace")


@click.group(cls=Group)
def workspace() -> None:
    """Create and isolate workspaces."""


@workspace.command()
@click.argument("name", metavar="NAME", type=_NAME)
def create(name: str) -> None:
    """Create a workspace, so that keys can be bound to it."""
    asyncio.run(_create(name))
    failure.note(f"workspace {name} is made; for a key: grns key create KEY --scope read --workspace {name}")


async def _create(name: str) -> None:
    from grns.access.workspaces import create_workspace
    from grns.cli.session import reading
    from grns.errors import ConflictError
    from grns.model.actor import of_process

    async with reading() as session:
        try:
            await create_workspace(session.database, name, actor=of_process("cli"))
        except ConflictError as error:
            raise failure.hinted(error, "grns workspace list") from error


@workspace.command("list")
@option.page_options(option.Token("cursor", code="bad_cursor"))
@output_option
def list_workspaces(out: Output, limit: int, after: str | None) -> None:
    """List workspaces by name."""
    asyncio.run(_list(out, limit, after))


async def _list(out: Output, limit: int, after: str | None) -> None:
    from grns.access.workspaces import list_workspaces
    from grns.cli.session import reading
    from grns.dead_letters import listing

    async with reading() as session:
        page = await list_workspaces(session.database, limit=limit, after=after)
        now = await listing.now(session.database)
    columns = [
        Column("WORKSPACE", lambda row: row["workspace"]),
        Column("CREATED", lambda row: when(row["created_at"], now)),
        Column("BY", lambda row: row["created_by"], may_shrink=True, spare=1),
    ]
    out.rows(page.rows, columns, next_cursor=page.next_cursor)
    out.end(page.rows, page.next_cursor, nothing="no more workspaces")


@workspace.command()
def isolate() -> None:
    """Enforce workspace isolation with row-level security.

    `grns db upgrade` does the same if it may create roles. Safe to repeat. Exit code 1: the database does not
    isolate workspaces, and the message says what is missing; grns then checks each request itself.
    """
    found = asyncio.run(_isolate())
    if found is not None:
        failure.say(f"the database does not keep workspaces apart: {found}")
        raise click.exceptions.Exit(failure.FAILED)
    failure.note("the database keeps workspaces apart")


async def _isolate() -> str | None:
    from grns.access import isolation as access
    from grns.cli.session import reading
    from grns.errors import UnusableError

    async with reading() as session:
        with contextlib.suppress(UnusableError):  # who does not own the tables is told how it is all the same
            await access.isolate(session.database)
        return await access.obstacle(session.database)
