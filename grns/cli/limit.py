"""`grns pool limit …`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import Cell, Column, Output, output_option, text
from grns.cli.session import CliSession, paged, with_session
from grns.limits import service as store
from grns.limits.model import LimitedPool, LimitSpec, TaskLimit, limit_spec
from grns.postgres.paging import Page

_LIST = "grns pool limit list"
_NAME = click.argument("name", metavar="NAME", type=option.Token("name"))


def _state(limit: TaskLimit) -> str:
    return "active" if limit.paused_at is None else "paused"


def _pools(limit: TaskLimit) -> str:
    return " ".join(map(_described, limit.pools))


def _described(pool: LimitedPool) -> str:
    types = "" if pool.task_types is None else f":{','.join(pool.task_types)}"
    return f"{pool.agent_type}{types}{'' if pool.key is None else f' by {pool.key}'}"


_COLUMNS = (
    Column("NAME", "name"),
    Column("MAX", "max_tasks"),
    Column("RATE", "rate"),
    Column("BURST", "burst"),
    Column("STATE", _state, is_status=True),
    Column("POOLS", _pools, may_shrink=True),
    Column("CHANGED", "updated_at", is_age=True, spare=1),
)
_FIELDS: Sequence[tuple[str, Cell]] = (
    ("name", "name"),
    ("max", "max_tasks"),
    ("rate", "rate"),
    ("burst", "burst"),
    ("state", _state),
    ("paused by", "paused_by"),
    ("reason", "pause_reason"),
    ("pools", _pools),
    ("workspace", "workspace"),
    ("changed by", "updated_by"),
    ("changed at", "updated_at"),
)
_KEYS = (
    Column("KEY", lambda one: one.key or "(none)", may_shrink=True),
    Column("WAITING", "waiting"),
    Column("QUEUED", "queued"),
    Column("RUNNING", "running"),
    Column("MAX", "max_tasks", spare=2),
    Column("WEIGHT", "weight", spare=3),
    Column("OLDEST", "waiting_since", is_age=True, spare=1),
)


@click.group(cls=Group)
def limit() -> None:
    """Limit how many tasks run at once, or begin in a time."""


@limit.command(
    examples=[
        "grns pool limit put openai --pool agents --rate 500/1m --burst 50",
        "grns pool limit put tenant --pool shop --type import_file --key tenant_id --max 5",
    ]
)
@_NAME
@click.option("--pool", "agent_type", metavar="POOL", required=True, type=option.Token("pool"), help="Pool.")
@click.option(
    "--type", "task_types", metavar="TYPE", multiple=True, type=option.Token("task_type"),
    help="Task type, repeatable. Defaults to all of the pool.",
)  # fmt: skip
@click.option("--key", metavar="PATH", help="Place in the payload: each value has a limit of its own.")
@click.option("--max", "max_tasks", type=click.IntRange(1), help="Tasks that are queued or running at once.")
@click.option("--rate", metavar="COUNT/TIME", help="Tasks that may begin in a time: 500/1m.")
@click.option("--burst", type=click.IntRange(1), help="Tasks of the rate that may begin at once.")
@output_option
def put(out: Output, task_types: tuple[str, ...], **fields: Any) -> None:
    """Create the limit NAME, or replace it: tasks of a pool fall under it."""
    _put(out, limit_spec(task_types=list(task_types) or None, **fields))


@with_session("write")
async def _put(session: CliSession, out: Output, spec: LimitSpec) -> None:
    found = await store.put(session.database, spec, workspace=session.workspace, actor=session.actor)
    out.record(found, lambda: text(found.name))
    failure.note(
        f"tasks that are submitted from now on fall under it; see: grns pool limit show {found.name}"
    )


@limit.command("list", examples=["grns pool limit list", "grns pool limit list -o json"])
@paged(_COLUMNS, nothing="no limits")
async def list_limits(session: CliSession, **page: Any) -> Page[TaskLimit]:
    """List limits by name."""
    return await store.list_limits(session.database, workspace=session.workspace, **page)


@limit.command(examples=["grns pool limit show openai", "grns pool limit show openai -o json"])
@_NAME
@output_option
@with_session("read", missing=_LIST)
async def show(session: CliSession, out: Output, name: str) -> None:
    """Show a limit."""
    out.details(await store.read(session.database, name, workspace=session.workspace), _FIELDS)


@limit.command(examples=["grns pool limit keys tenant", "grns pool limit keys tenant --limit 200"])
@_NAME
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Keys at most.")
@output_option
@with_session("read", missing=_LIST)
async def keys(session: CliSession, out: Output, name: str, limit: int) -> None:
    """List the keys of a limit that have tasks, the most waiting first."""
    await store.read(session.database, name, workspace=session.workspace)
    out.rows(await store.list_keys(session.database, name, workspace=session.workspace, limit=limit), _KEYS)


@limit.command(
    "set-key",
    examples=[
        "grns pool limit set-key tenant acme --max 20 --weight 3",
        "grns pool limit set-key tenant acme --reset",
    ],
)
@_NAME
@click.argument("key", metavar="KEY")
@click.option("--max", "max_tasks", type=click.IntRange(1), help="Tasks at once. Defaults to the limit's.")
@click.option(
    "--weight",
    type=click.FloatRange(0.01, 100),
    default=1.0,
    show_default=True,
    help="Turns that it has where another key has one.",
)
@click.option("--reset", "is_default", is_flag=True, help="Take its numbers back.")
@with_session("write", missing=_LIST)
async def set_key(
    session: CliSession, name: str, key: str, max_tasks: int | None, weight: float, is_default: bool
) -> None:
    """Give one KEY of the limit NAME numbers of its own."""
    who = {"workspace": session.workspace, "actor": session.actor}
    if is_default:
        await store.delete_key(session.database, name, key, **who)
    else:
        await store.put_key(session.database, name, key, max_tasks=max_tasks, weight=weight, **who)
    failure.note(f"see: grns pool limit keys {name}")


@limit.command(examples=["grns pool limit pause openai", "grns pool limit pause openai --reason outage"])
@_NAME
@option.REASON
@output_option
@with_session("write", missing=_LIST)
async def pause(session: CliSession, out: Output, name: str, reason: str | None) -> None:
    """Pause a limit: none of its tasks is queued until it is resumed."""
    found = await store.pause(
        session.database, name, workspace=session.workspace, actor=session.actor, reason=reason
    )
    out.details(found, _FIELDS)


@limit.command(examples=["grns pool limit resume openai", "grns pool limit resume openai -o json"])
@_NAME
@output_option
@with_session("write", missing=_LIST)
async def resume(session: CliSession, out: Output, name: str) -> None:
    """Resume a limit."""
    out.details(
        await store.resume(session.database, name, workspace=session.workspace, actor=session.actor), _FIELDS
    )


@limit.command(examples=["grns pool limit delete openai", "grns pool limit delete openai --yes"])
@_NAME
@option.sure_options
@with_session("write", missing=_LIST)
async def delete(session: CliSession, name: str, is_trial: bool, is_sure: bool) -> None:
    """Delete a limit, for all pools. Tasks that wait for room in it alone are queued."""
    found = await store.read(session.database, name, workspace=session.workspace)
    option.confirm(f"delete limit {name} ({_pools(found)})", is_sure=is_sure, is_trial=is_trial)
    await store.delete(session.database, name, workspace=session.workspace, actor=session.actor)
    failure.note(f"limit {name} is deleted")
