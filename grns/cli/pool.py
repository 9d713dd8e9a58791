"""`grns pool …`: who works in each pool, what waits for it, and whether it is paused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from grns.bootstrap import tools
from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import Column, Output, output_option, text, told, when
from grns.text import lasted

if TYPE_CHECKING:
    from grns.tasks.pauses import Pause

_AGENT_TYPE = click.argument("agent_type", metavar="AGENT_TYPE", type=option.Token("agent_type"))
_TYPE = click.option(
    "--type", "task_type", metavar="TYPE", type=option.Token("task_type"), help="Only tasks of this type."
)


@click.group(cls=Group)
def pool() -> None:
    """List, pause and resume pools; list workers."""


@pool.command("list")
@option.page_options(option.Token("cursor", code="bad_cursor"))
@output_option
def list_pools(out: Output, limit: int, after: str | None) -> None:
    """List pools with workers, queued tasks or a pause."""

    async def look() -> None:
        from grns.cli.session import reading
        from grns.dead_letters import listing
        from grns.tasks.pools import list_pools

        async with reading() as session:
            page = await list_pools(session.database, workspace=session.workspace, limit=limit, after=after)
            now = await listing.now(session.database)
        columns = [
            Column("AGENT TYPE", lambda row: row["agent_type"]),
            Column("WORKERS", lambda row: row["workers"], spare=2),
            Column("RUNNING", lambda row: f"{row['running']}/{row['slots']}", spare=1),
            Column("QUEUED", _queued),
            Column("BY PRIORITY", lambda row: " ".join(map(_queued, row["lanes"])), spare=4),
            Column("OLDEST", _oldest, spare=3),
            Column("PAUSED", lambda row: _paused(row, now), may_shrink=True),
        ]
        out.rows(page.rows, columns, next_cursor=page.next_cursor)
        out.end(page.rows, page.next_cursor, nothing="no pools")

    asyncio.run(look())


@pool.command("workers")
@option.page_options(option.CursorType())
@output_option
def list_workers(out: Output, limit: int, after: str | None) -> None:
    """List workers by pool, HTTP workers and silent workers included."""

    async def look() -> None:
        from grns.cli.session import reading
        from grns.dead_letters import listing
        from grns.worker.registry import list_agents

        async with reading() as session:
            page = await list_agents(session.database, workspace=session.workspace, limit=limit, after=after)
            now = await listing.now(session.database)
        columns = [
            Column("WORKER", lambda row: row["agent_id"]),
            Column("RUNNING", lambda row: f"{row['running']}/{row['concurrency']}"),
            Column("STATE", lambda row: "alive" if row["is_alive"] else "silent", is_status=True),
            Column("SEEN", lambda row: when(row["last_seen_at"], now)),
            Column("WORKED", lambda row: when(row["worked_at"], now), spare=3),
            Column("TASK TYPES", lambda row: " ".join(row["task_types"]), may_shrink=True),
            Column("HOST", lambda row: f"{row['host']}:{row['pid']}", may_shrink=True, spare=2),
            Column("VERSION", lambda row: row["version"], may_shrink=True, spare=1),
        ]
        out.rows(page.rows, columns, next_cursor=page.next_cursor)
        out.end(page.rows, page.next_cursor, nothing="no workers")

    asyncio.run(look())


def _queued(row: Mapping[str, Any]) -> str:
    return f"{row['queued']}{'+' if row['has_more'] else ''}"


def _oldest(row: Mapping[str, Any]) -> str | None:
    return None if row["oldest_seconds"] is None else lasted(row["oldest_seconds"])


def _paused(row: Mapping[str, Any], now: datetime) -> str | None:
    return "; ".join(_said(pause, now) for pause in row["pauses"]) or None


def _said(pause: Mapping[str, Any], now: datetime) -> str:
    """Return one pause in short: what of the pool, since when and until when, by whom and why."""
    what = "" if pause["task_type"] is None else f"{pause['task_type']}: "
    left = "" if pause["until"] is None else f", resumes {told(when(pause['until'], now))}"
    why = "" if pause["reason"] is None else f" ({pause['reason']})"
    return f"{what}{told(when(pause['paused_at'], now))} by {pause['paused_by']}{left}{why}"


@pool.command()
@_AGENT_TYPE
@_TYPE
@click.option("--reason", help="Reason, shown with the pool.")
@click.option(
    "--for",
    "seconds",
    type=option.Duration(code="bad_until"),
    metavar="TIME",
    help="Resume automatically after 30m, 2h, 1d. Defaults to never.",
)
@output_option
def pause(
    out: Output, agent_type: str, task_type: str | None, reason: str | None, seconds: float | None
) -> None:
    """Pause a pool, or one task type. Running tasks continue, queued tasks wait."""
    begun, workers = asyncio.run(_pause(agent_type, task_type, reason, seconds))
    until = "until it is resumed" if begun.left_seconds is None else f"for {lasted(begun.left_seconds)}"
    out.record(asdict(begun), lambda: text(f"{_named(agent_type, task_type)} is paused {until}"))
    if not workers:
        failure.note(f"no worker of {agent_type} is up: is that its name?")


async def _pause(
    agent_type: str, task_type: str | None, reason: str | None, seconds: float | None
) -> tuple[Pause, int]:
    """Pause it, and return how many workers it has, too."""
    from grns.cli.session import writing
    from grns.model.actor import of_process
    from grns.tasks.pools import read_pools

    async with writing() as session:
        pauses = tools.pauses(session.app, session.database, session.transport)
        begun = await pauses.pause(
            agent_type, task_type, actor=of_process("cli"), reason=reason, until=seconds
        )
        (row,) = await read_pools(session.database, session.workspace, [agent_type])
    return begun, row["workers"]


@pool.command()
@_AGENT_TYPE
@_TYPE
@output_option
def resume(out: Output, agent_type: str, task_type: str | None) -> None:
    """Resume a pool or, with --type, one task type. Other pauses stay."""
    ended, left = asyncio.run(_resume(agent_type, task_type))
    named = _named(agent_type, task_type)
    if ended is None:
        failure.say(f"{named} is not paused", "grns pool list")
    else:
        out.record(asdict(ended), lambda: text(f"{named} is resumed"))
    for one in left:
        failure.note(f"{_named(one.agent_type, one.task_type)} is still paused")
    if ended is None:
        raise click.exceptions.Exit(failure.CONFLICT)


async def _resume(agent_type: str, task_type: str | None) -> tuple[Pause | None, list[Pause]]:
    """End a pause, and return those of the pool that are left, too."""
    from grns.cli.session import writing
    from grns.model.actor import of_process
    from grns.tasks.pauses import in_force

    async with writing() as session:
        pauses = tools.pauses(session.app, session.database, session.transport)
        ended = await pauses.resume(agent_type, task_type, actor=of_process("cli"))
        return ended, await in_force(session.database, session.workspace, [agent_type])


def _named(agent_type: str, task_type: str | None) -> str:
    return agent_type if task_type is None else f"{task_type} of {agent_type}"
