"""`grns pool …`, and `grns worker list` and `show`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from grns.bootstrap import tools
from grns.cli import failure, option
from grns.cli.group import Command, Group
from grns.cli.output import Cell, Column, Output, age, output_option, text
from grns.cli.session import CliSession, paged, with_session
from grns.errors import NotFoundError
from grns.postgres.paging import Page
from grns.tasks import pools
from grns.tasks.pauses import in_force
from grns.text import lasted
from grns.worker.registry import list_agents

_PAGE = 1000

_AGENT_TYPE = click.argument("agent_type", metavar="POOL", type=option.Token("agent_type"))


def queued(row: Mapping[str, Any]) -> str:
    """Return how many tasks are queued; `+` for more than were counted."""
    return f"{row['queued']}{'+' if row['has_more'] else ''}"


def by_priority(row: Mapping[str, Any]) -> str:
    """Return how many tasks are queued of each priority."""
    return " ".join(map(queued, row["priorities"]))


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
        Column("POOL", "agent_type"),
        Column("WORKERS", "workers", spare=2),
        Column("RUNNING", lambda row: f"{row['running']}/{row['slots']}", spare=1),
        Column("QUEUED", queued),
        Column("BY PRIORITY", by_priority, spare=4),
        Column("OLDEST", oldest, spare=3),
        Column("PAUSED", paused, may_shrink=True),
    )
    out.page(page, columns, nothing="no pools")


@pool.command(
    examples=[
        "grns pool pause worker --reason deploy --duration 30m",
        "grns pool pause worker --type fetch_page",
    ]
)
@_AGENT_TYPE
@option.TASK_TYPE
@click.option("--reason", help="Reason, shown with the pool.")
@click.option(
    "--duration",
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
        failure.print_error(f"{name} is not paused", "grns pool list")
    else:
        out.record(asdict(ended), lambda: text(f"{name} is resumed"))
    for other in left:
        failure.note(f"{_named(other.agent_type, other.task_type)} is still paused")
    if ended is None:
        raise click.exceptions.Exit(failure.CONFLICT)


def _named(agent_type: str, task_type: str | None) -> str:
    return agent_type if task_type is None else f"{task_type} of {agent_type}"


def _state(row: Any) -> str:
    return "alive" if row["is_alive"] else "silent"


_WORKERS = (
    Column("WORKER", "agent_id"),
    Column("RUNNING", lambda row: f"{row['running']}/{row['concurrency']}"),
    Column("STATE", _state, is_status=True),
    Column("SEEN", "last_seen_at", is_age=True),
    Column("WORKED", "worked_at", is_age=True, spare=3),
    Column("TASK TYPES", lambda row: " ".join(row["task_types"]), may_shrink=True),
    Column("HOST", lambda row: f"{row['host']}:{row['pid']}", may_shrink=True, spare=2),
    Column("VERSION", "version", may_shrink=True, spare=1),
)
_WORKER: Sequence[tuple[str, Cell]] = (
    ("id", "agent_id"),
    ("status", _state),
    ("pool", "agent_type"),
    ("running", lambda row: f"{row['running']} of {row['concurrency']} slots"),
    ("task types", lambda row: " ".join(row["task_types"])),
    ("host", "host"),
    ("pid", "pid"),
    ("version", "version"),
    ("lease", lambda row: f"{row['lease_seconds']:g} s"),
    ("started", "started_at"),
    ("last heartbeat", "last_seen_at"),
    ("last claim", "worked_at"),
)


@click.command("list", cls=Command, examples=["grns worker list", "grns worker list -o json"])
@paged(_WORKERS, nothing="no workers")
async def list_workers(session: CliSession, **page: Any) -> Page:
    """List workers by pool, HTTP workers and silent workers included."""
    return await list_agents(session.database, workspace=session.workspace, **page)


@click.command(
    "show", cls=Command, examples=["grns worker show WORKER_ID", "grns worker show WORKER_ID -o json"]
)
@click.argument("worker_id", metavar="ID")
@output_option
@with_session("read", missing="grns worker list")
async def show_worker(session: CliSession, out: Output, worker_id: str) -> None:
    """Show a worker: its slots, task types, process and last heartbeat."""
    after: str | None = None
    while True:
        page = await list_agents(session.database, workspace=session.workspace, limit=_PAGE, after=after)
        row = next((row for row in page.rows if row["agent_id"] == worker_id), None)
        if row is not None:
            out.details(row, _WORKER)
            return
        after = page.next_cursor
        if after is None:
            raise NotFoundError(f"there is no worker {worker_id[:100]} in workspace {session.workspace}")
