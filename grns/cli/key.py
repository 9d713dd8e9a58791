"""`grns key …`: API keys."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from grns.access.principals import SCOPES
from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import Column, Output, output_option, text, when
from grns.errors import InvalidInputError

if TYPE_CHECKING:
    from grns.model.api_key import ApiKey

_EVERYWHERE = click.option("--all-workspaces", "is_everywhere", is_flag=True, help="All workspaces.")
_MEANINGS = "; ".join(f"{scope}: {meaning}" for scope, meaning in SCOPES.items())


class KeyId(click.ParamType[str]):
    """A key's id, or a whole key: of that, the id."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the id."""
        from grns.model.api_key import key_id

        try:
            return key_id(value)
        except InvalidInputError as error:
            raise option.InvalidOption(error.code, str(error), param, ctx) from error


@click.group(cls=Group)
def key() -> None:
    """Create, list and revoke API keys."""


@key.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--scope",
    "scopes",
    metavar="SCOPE",
    type=click.Choice(list(SCOPES)),
    multiple=True,
    required=True,
    help=f"What it is for, once or more. {_MEANINGS}.",
)
@click.option(
    "--expires",
    "expires_seconds",
    metavar="TIME",
    type=option.Duration(code="bad_expiry"),
    help="Lifetime: 30d, 12h. Defaults to unlimited.",
)
@click.option(
    "--pool",
    "pools",
    metavar="NAME",
    type=option.Token("pool"),
    multiple=True,
    help="Pool that the key may work for. Repeatable. Defaults to all.",
)
@_EVERYWHERE
@output_option
def create(out: Output, is_everywhere: bool, **said: Any) -> None:
    """Create a key for this workspace or for all, and print it once.

    NAME identifies it in lists, for example `ci` or `billing in production`.
    """
    from grns.model.api_key import check

    check(said["name"], said["expires_seconds"])
    made, row = asyncio.run(_create(is_everywhere, said))
    out.record({"key": made.reveal(), **row}, lambda: text(made.reveal()))
    failure.note("keep it: it is not shown again, grns knows its digest only")


async def _create(is_everywhere: bool, said: dict[str, Any]) -> tuple[ApiKey, dict[str, Any]]:
    from grns.access.keys import create_key
    from grns.cli.session import reading
    from grns.errors import NotFoundError
    from grns.model.actor import of_process

    async with reading() as session:
        workspace = None if is_everywhere else session.workspace
        try:
            said = {**said, "pools": said["pools"] or None}
            return await create_key(session.database, workspace=workspace, actor=of_process("cli"), **said)
        except NotFoundError as error:
            raise failure.hinted(error, f"grns workspace create {workspace}") from error


@key.command("list")
@_EVERYWHERE
@option.page_options(option.Token("cursor", code="bad_cursor"))
@output_option
def list_keys(out: Output, limit: int, after: str | None, is_everywhere: bool) -> None:
    """List this workspace's keys, the latest first; with --all-workspaces, all keys."""
    asyncio.run(_list(out, limit, after, is_everywhere))


async def _list(out: Output, limit: int, after: str | None, is_everywhere: bool) -> None:
    from grns.access.keys import list_keys
    from grns.cli.session import reading
    from grns.dead_letters import listing

    async with reading() as session:
        workspace = None if is_everywhere else session.workspace
        page = await list_keys(session.database, workspace=workspace, limit=limit, after=after)
        now = await listing.now(session.database)
    columns = [
        Column("ID", lambda row: row["id"]),
        Column("NAME", lambda row: row["name"], may_shrink=True),
        Column("WORKSPACE", lambda row: row["workspace"] or "all", may_shrink=True, spare=2),
        Column("SCOPES", lambda row: " ".join(row["scopes"])),
        Column("POOLS", lambda row: " ".join(row["pools"] or ["all"]), may_shrink=True, spare=5),
        Column("STATE", lambda row: row["state"], is_status=True),
        Column("CREATED", lambda row: when(row["created_at"], now), spare=4),
        Column("EXPIRES", lambda row: when(row["expires_at"], now), spare=3),
        Column("USED", lambda row: when(row["last_used_at"], now), spare=1),
    ]
    out.rows(page.rows, columns, next_cursor=page.next_cursor)
    nothing = "no keys" if is_everywhere else f"no keys of {workspace} alone: --all-workspaces lists all"
    out.end(page.rows, page.next_cursor, nothing=nothing)


@key.command()
@click.argument("key_id", metavar="ID", type=KeyId())
@option.sure_options
def revoke(key_id: str, is_trial: bool, is_sure: bool) -> None:
    """Revoke a key. ID is as `list` shows it, or a whole key."""
    found = asyncio.run(_find(key_id))
    what = f"revoke key {key_id} ({found['name']}, {found['state']})"
    if is_trial:
        failure.note(f"would {what}")
        return
    option.confirm(what, is_sure=is_sure)
    if not asyncio.run(_revoke(key_id)):
        failure.say(f"key {key_id} was revoked before")
        raise click.exceptions.Exit(failure.CONFLICT)
    failure.note(f"key {key_id} is revoked")


@key.command("rotate-token-secret")
@option.sure_options
def rotate_token_secret(is_trial: bool, is_sure: bool) -> None:
    """Sign claim tokens with a new secret.

    Tokens signed with the previous secret stay valid until you rotate again: rotate twice to end them all.
    """
    what = "sign claim tokens with a new secret, and end the tokens from before the last rotation"
    if is_trial:
        failure.note(f"would {what}")
        return
    option.confirm(what, is_sure=is_sure)
    failure.note(f"claim tokens are signed with secret {asyncio.run(_rotate())}")


async def _rotate() -> int:
    from grns.access.token_keys import rotate
    from grns.cli.session import reading
    from grns.model.actor import of_process

    async with reading() as session:
        return await rotate(session.database, actor=of_process("cli"))


async def _find(key_id: str) -> dict[str, Any]:
    from grns.access.keys import read_key
    from grns.cli.session import reading
    from grns.errors import NotFoundError

    async with reading() as session:
        try:
            return await read_key(session.database, key_id, workspace=None)
        except NotFoundError as error:
            raise failure.hinted(error, "grns key list --all-workspaces") from error


async def _revoke(key_id: str) -> bool:
    from grns.access.keys import revoke_key
    from grns.cli.session import reading
    from grns.model.actor import of_process

    async with reading() as session:
        return await revoke_key(session.database, key_id, workspace=None, actor=of_process("cli"))
