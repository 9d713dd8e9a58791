"""`grns admin key …` and `grns admin workspace …`."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import Any

import click

from grns.access import isolation, keys, token_keys, workspaces
from grns.access.keys import KeyInfo
from grns.access.principals import SCOPES
from grns.access.workspaces import Workspace
from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import Column, Output, output_option, text
from grns.cli.session import CliSession, paged, with_session
from grns.errors import UnusableError
from grns.model.api_key import check, key_id
from grns.postgres.paging import Page

_EVERYWHERE = click.option("--all-workspaces", "is_everywhere", is_flag=True, help="All workspaces.")
_MEANINGS = "; ".join(f"{scope}: {meaning}" for scope, meaning in SCOPES.items())
_KEYS = (
    Column("ID", "id"),
    Column("NAME", "name", may_shrink=True),
    Column("WORKSPACE", lambda key: key.workspace or "all", may_shrink=True, spare=2),
    Column("SCOPES", lambda key: " ".join(key.scopes)),
    Column("AGENTS", lambda key: " ".join(key.agents or ["all"]), may_shrink=True, spare=6),
    Column("POOLS", lambda key: " ".join(key.pools or ["all"]), may_shrink=True, spare=5),
    Column("STATE", "state", is_status=True),
    Column("CREATED", "created_at", is_age=True, spare=4),
    Column("EXPIRES", "expires_at", is_age=True, spare=3),
    Column("USED", "last_used_at", is_age=True, spare=1),
)
_WORKSPACES = (
    Column("WORKSPACE", "workspace"),
    Column("CREATED", "created_at", is_age=True),
    Column("BY", "created_by", may_shrink=True, spare=1),
)


@click.group(cls=Group)
def key() -> None:
    """Create, list and revoke API keys."""


@key.command(
    "create",
    examples=[
        "grns admin key create ci --scope submit --expires 90d",
        "grns admin key create ops --scope admin --all-workspaces",
    ],
)
@click.argument(
    "name", metavar="NAME", type=option.Checked(lambda name: check(name, None), name="name", is_kept=True)
)
@click.option(
    "--scope",
    "scopes",
    metavar="SCOPE",
    type=click.Choice(list(SCOPES)),
    multiple=True,
    required=True,
    help=f"Scope, repeatable. {_MEANINGS}.",
)
@click.option(
    "--expires",
    "expires_seconds",
    metavar="TIME",
    type=option.Duration(code="bad_expiry", check=lambda seconds: check("any", seconds)),
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
@click.option(
    "--agent", "agents", metavar="NAME", type=option.Token("agent"), multiple=True,
    help="Agent that the key may be. Repeatable. Defaults to all.",
)  # fmt: skip
@_EVERYWHERE
@output_option
@with_session("read")
async def create_key(
    session: CliSession, /, out: Output, is_everywhere: bool, pools: tuple[str, ...],
    agents: tuple[str, ...], **fields: Any,
) -> None:  # fmt: skip
    """Create a key for this workspace or for all, and print it once.

    NAME identifies it in lists, for example `ci` or `billing in production`.
    """
    workspace = None if is_everywhere else session.workspace
    with failure.hinting(missing=f"grns admin workspace create {workspace}"):
        made, info = await keys.create_key(
            session.database, workspace=workspace, actor=session.actor, pools=pools or None,
            agents=agents or None, **fields,
        )  # fmt: skip
    out.record({"key": made.reveal(), **asdict(info)}, lambda: text(made.reveal()))
    failure.note("store it now: it is not shown again, because grns keeps only its digest")


@key.command("list", examples=["grns admin key list", "grns admin key list --all-workspaces -o json"])
@_EVERYWHERE
@paged(_KEYS, nothing="no such keys; --all-workspaces lists all", cursor=option.NAME_CURSOR)
async def list_keys(session: CliSession, is_everywhere: bool, **page: Any) -> Page[KeyInfo]:
    """List this workspace's keys, the latest first; with --all-workspaces, all keys."""
    workspace = None if is_everywhere else session.workspace
    return await keys.list_keys(session.database, workspace=workspace, **page)


@key.command(examples=["grns admin key revoke KEY_ID", "grns admin key revoke KEY_ID --dry-run"])
@click.argument("key_id", metavar="ID", type=option.Checked(key_id, name="key"))
@option.sure_options
@with_session("read", missing="grns admin key list --all-workspaces")
async def revoke(session: CliSession, key_id: str, is_trial: bool, is_sure: bool) -> None:
    """Revoke a key. ID is as `list` shows it, or a whole key."""
    info = await keys.read_key(session.database, key_id, workspace=None)
    action = f"revoke key {key_id} ({info.name}, {info.state})"
    option.confirm(action, is_sure=is_sure, is_trial=is_trial)
    if not await keys.revoke_key(session.database, key_id, workspace=None, actor=session.actor):
        failure.print_error(f"key {key_id} was revoked before")
        raise click.exceptions.Exit(failure.CONFLICT)
    failure.note(f"key {key_id} is revoked")


@key.command(
    "rotate-token-secret",
    examples=["grns admin key rotate-token-secret --dry-run", "grns admin key rotate-token-secret --yes"],
)
@option.sure_options
@with_session("none")
async def rotate_token_secret(session: CliSession, is_trial: bool, is_sure: bool) -> None:
    """Sign claim tokens with a new secret.

    Tokens signed with the previous secret stay valid until you rotate again: rotate twice to end them all.
    """
    action = "sign claim tokens with a new secret, and end the tokens from before the last rotation"
    option.confirm(action, is_sure=is_sure, is_trial=is_trial)
    await session.database.connect()
    number = await token_keys.rotate(session.database, actor=session.actor)
    failure.note(f"claim tokens are signed with secret {number}")


@click.group(cls=Group)
def workspace() -> None:
    """Create and isolate workspaces."""


@workspace.command("create", examples=["grns admin workspace create acme", "grns admin workspace create eu"])
@click.argument("name", metavar="NAME", type=option.Token("workspace"))
@with_session("read", conflict="grns admin workspace list")
async def create_workspace(session: CliSession, name: str) -> None:
    """Create a workspace, so that keys can be bound to it."""
    await workspaces.create_workspace(session.database, name, actor=session.actor)
    failure.note(
        f"workspace {name} is created; for a key: grns admin key create KEY --scope read --workspace {name}"
    )


@workspace.command("list", examples=["grns admin workspace list", "grns admin workspace list -o jsonl"])
@paged(_WORKSPACES, nothing="no more workspaces", cursor=option.NAME_CURSOR)
async def list_workspaces(session: CliSession, **page: Any) -> Page[Workspace]:
    """List workspaces by name."""
    return await workspaces.list_workspaces(session.database, **page)


@workspace.command(
    examples=[
        "grns admin workspace isolate",
        "grns admin workspace isolate --database-url postgresql://owner@db/app",
    ]
)
@with_session("read")
async def isolate(session: CliSession) -> None:
    """Enforce workspace isolation with row-level security.

    `grns admin db upgrade` does the same if it may create roles. Safe to repeat. Exit code 1: the database
    does not isolate workspaces, and the message says what is missing; grns then checks each request itself.
    """
    with contextlib.suppress(UnusableError):  # a role that does not own the tables gets the report too
        await isolation.isolate(session.database)
    obstacle = await isolation.obstacle(session.database)
    if obstacle is not None:
        failure.print_error(f"the database does not isolate workspaces: {obstacle}")
        raise click.exceptions.Exit(failure.FAILED)
    failure.note("the database isolates workspaces")
