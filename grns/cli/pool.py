"""`grns pool …`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from grns.bootstrap import tools
from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import Column, Output, age, output_option, text
from grns.cli.session import CliSession, with_session
from grns.tasks import pools
from grns.tasks.pauses import in_force
from grns.text import lasted

_AGENT_TYPE = click.argument("agent_type", metavar="AGENT_TYPE", type=option.Token("agent_type"))


def queued(row: Mapping[str, Any]) -> str:
    """Return how many tasks are queued; `+` for more than were counted."""
    return f"{row['queued']}{'+' if row['has_more'] else ''}"


def by_priority(row: Mapping[str, Any]) -> str:
    """Return how many tasks are queued of each priority."""
    return " ".join(map(queued, row["lanes"]))


def oldest(row: Mapping[str, Any]) -> str | None:
    """Return how long the oldest queued task has waited."""
    return None if row["oldest_seconds"] is None else lasted(row["oldest_seconds"])


@click.group(cls=Group)
def pool() -> None:
    """List, pause and resume pools."""


@pool.command("list", examples=["grns pool list", "grns pool list -o json"])
@option.page_options(option.Token("cursor", code="bad_cursor"))
@output_option
@with_session("read")
async def list_pools(session: CliSession, out: Output, limit: int, after: str | None) -> None:
    """List pools with workers, queued tasks or a pause."""
    page = await pools.list_pools(session.database, workspace=session.workspace, limit=limit, after=after)
    now = await session.now()

    def paused(row: Mapping[str, Any]) -> str | None:
        return "; ".join(described(pause) for pause in row["pauses"]) or None

    def described(pause: Mapping[str, Any]) -> str:
        subject = "" if pause["task_type"] is None else f"{pause['task_type']}: "
        until = "" if pause["until"] is None else f", resumes {age(pause['until'], now)}"
        reason = "" if pause["reason"] is None else f" ({pause['reason']})"
        return f"{subject}{age(pause['paused_at'], now)} by {pause['paused_by']}{until}{reason}"

    columns = (
        Column("AGENT TYPE", "agent_type"),
        Column("WORKERS", "workers", spare=2),
        Column("RUNNING", lambda row: f"{row['running']}/{row['slots']}", spare=1),
        Column("QUEUED", queued),
        Column("BY PRIORITY", by_priority, spare=4),
        Column("OLDEST", oldest, spare=3),
        Column("PAUSED", paused, may_shrink=True),
    )
    out.page(page.rows, columns, page.next_cursor, nothing="no pools")


@pool.command(
    examples=["grns pool pause worker --reason deploy --for 30m", "grns pool pause worker --type fetch_page"]
)
@_AGENT_TYPE
@option.TASK_TYPE
@click.option("--reason", help="Reason, shown with the pool.")
@click.option(
    "--for",
    "seconds",
    type=option.Duration(code="bad_until"),
    metavar="TIME",
    help="Resume automatically after 30m, 2h, 1d. Defaults to never.",
)
@output_option
@with_session("write")
async def pause(
    session: CliSession,
    out: Output,
    agent_type: str,
    task_type: str | None,
    reason: str | None,
    seconds: float | None,
) -> None:
    """Pause a pool, or one task type. Running tasks continue, queued tasks wait."""
    pauses = tools.pauses(session.app, session.database, session.transport)
    begun = await pauses.pause(agent_type, task_type, actor=session.actor, reason=reason, until=seconds)
    (row,) = await pools.read_pools(session.database, session.workspace, [agent_type])
    until = "until it is resumed" if begun.left_seconds is None else f"for {lasted(begun.left_seconds)}"
    out.record(asdict(begun), lambda: text(f"{_named(agent_type, task_type)} is paused {until}"))
    if not row["workers"]:
        failure.note(f"pool {agent_type} has no live workers: is the name right?")


@pool.command(examples=["grns pool resume worker", "grns pool resume worker --type fetch_page"])
@_AGENT_TYPE
@option.TASK_TYPE
@output_option
@with_session("write")
async def resume(session: CliSession, out: Output, agent_type: str, task_type: str | None) -> None:
    """Resume a pool or, with --type, one task type. Other pauses stay."""
    pauses = tools.pauses(session.app, session.database, session.transport)
    ended = await pauses.resume(agent_type, task_type, actor=session.actor)
    left = await in_force(session.database, session.workspace, [agent_type])
    name = _named(agent_type, task_type)
    if ended is None:
        failure.say(f"{name} is not paused", "grns pool list")
    else:
        out.record(asdict(ended), lambda: text(f"{name} is resumed"))
    for other in left:
        failure.note(f"{_named(other.agent_type, other.task_type)} is still paused")
    if ended is None:
        raise click.exceptions.Exit(failure.CONFLICT)


def _named(agent_type: str, task_type: str | None) -> str:
    return agent_type if task_type is None else f"{task_type} of {agent_type}"
