"""`grns pool …`, and `grns worker list` and `show`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from grns.bootstrap import tools
from grns.cli import failure, option
from grns.cli.budget import budget
from grns.cli.group import Command, Group
from grns.cli.limit import limit
from grns.cli.output import Cell, Column, Output, age, output_option, text
from grns.cli.session import CliSession, paged, with_session
from grns.errors import InvalidInputError, NotFoundError
from grns.model.text import lasted
from grns.postgres.paging import Page
from grns.tasks import pools, quotas
from grns.tasks.pauses import Pause, in_force
from grns.tasks.pools import PoolState, PriorityBacklog
from grns.worker import registry
from grns.worker.registry import WorkerState

_PAGE = 1000

_QUOTAS = (
    Column("POOL", "agent_type"),
    Column("MAX QUEUED", "max_queued"),
    Column("FULL SINCE", "full_since", is_age=True),
    Column("CHANGED BY", "updated_by", may_shrink=True),
)
_FOLLOW_UPS = (
    Column("AFTER", "follows"),
    Column("OUTCOME", "outcome"),
    Column("SUBMITS", "task_type"),
    Column("POOL", "agent_type"),
    Column("PRIORITY", "priority"),
    Column("MAX ATTEMPTS", "max_attempts", spare=1),
    Column("PAYLOAD", lambda one: json.dumps(one.payload, ensure_ascii=False), may_shrink=True, spare=2),
)
_AGENT_TYPE = click.argument("agent_type", metavar="POOL", type=option.Token("agent_type"))


def queued(backlog: PoolState | PriorityBacklog) -> str:
    """Return how many tasks are queued; `+` for more than were counted."""
    return f"{backlog.queued}{'+' if backlog.has_more else ''}"


def by_priority(pool: PoolState) -> str:
    """Return how many tasks are queued of each priority."""
    return " ".join(map(queued, pool.priorities))


def oldest(pool: PoolState) -> str | None:
    """Return how long the oldest queued task has waited."""
    return None if pool.oldest_seconds is None else lasted(pool.oldest_seconds)


@click.group(cls=Group)
def pool() -> None:
    """List, pause and resume pools."""


pool.add_command(limit)
pool.add_command(budget)


@pool.command("list", examples=["grns pool list", "grns pool list -o json"])
@option.page_options(option.Token("cursor", code="bad_cursor"))
@output_option
@with_session("read")
async def list_pools(session: CliSession, out: Output, limit: int, after: str | None) -> None:
    """List pools with workers, queued tasks or a pause."""
    page = await pools.list_pools(session.database, workspace=session.workspace, limit=limit, after=after)
    now = await session.now()

    def paused(pool: PoolState) -> str | None:
        return "; ".join(map(described, pool.pauses)) or None

    def described(pause: Pause) -> str:
        subject = "" if pause.task_type is None else f"{pause.task_type}: "
        until = "" if pause.until is None else f", resumes {age(pause.until, now)}"
        reason = "" if pause.reason is None else f" ({pause.reason})"
        return f"{subject}{age(pause.paused_at, now)} by {pause.paused_by}{until}{reason}"

    columns = (
        Column("POOL", "agent_type"),
        Column("WORKERS", "workers", spare=2),
        Column("RUNNING", lambda pool: f"{pool.running}/{pool.slots}", spare=1),
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
    (state,) = await pools.read_pools(session.database, session.workspace, [agent_type])
    until = "until it is resumed" if begun.left_seconds is None else f"for {lasted(begun.left_seconds)}"
    out.record(asdict(begun), lambda: text(f"{_named(agent_type, task_type)} is paused {until}"))
    if not state.workers:
        failure.note(f"pool {agent_type} has no live workers: is the name right?")


@pool.command(examples=["grns pool resume worker", "grns pool resume worker --type fetch_page"])
@_AGENT_TYPE
@option.TASK_TYPE
@output_option
@with_session("write", conflict="grns pool budget list")
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


@pool.command(
    "follow-ups",
    examples=["grns pool follow-ups press", "grns pool follow-ups coder --put @follow-ups.json"],
)
@_AGENT_TYPE
@click.option("--put", "wanted", metavar="JSON", help="Declare these instead: a JSON list, @FILE, or -.")
@output_option
@with_session("write")
async def follow_ups(session: CliSession, out: Output, agent_type: str, wanted: str | None) -> None:
    """Show what grns submits when tasks of a pool have ended, or declare it."""
    if wanted is None:
        found = await session.client.follow_ups.list(agent_type)
    else:
        said = option.read_json(wanted)
        if not isinstance(said, list):
            raise InvalidInputError("bad_follow_up", "--put is a JSON list of objects")
        found = await session.client.follow_ups.put(agent_type, said)
    out.rows(found, _FOLLOW_UPS, nothing="no follow-ups", now=await session.now())


@pool.command(
    examples=["grns pool quota thumbnails --max-queued 10000", "grns pool quota thumbnails --remove"]
)
@_AGENT_TYPE
@click.option("--max-queued", type=click.IntRange(1, 100_000), help="Tasks that may be queued.")
@click.option("--remove", "is_removed", is_flag=True, help="Let any number be queued.")
@output_option
@with_session("write")
async def quota(
    session: CliSession, out: Output, agent_type: str, max_queued: int | None, is_removed: bool
) -> None:
    """Set how many tasks of a pool may be queued, or show it. More submissions are refused."""
    who = {"workspace": session.workspace, "actor": session.actor}
    if max_queued is not None or is_removed:
        await quotas.put_quota(session.database, agent_type, None if is_removed else max_queued, **who)
    found = await quotas.list_quotas(session.database, workspace=session.workspace, agent_types=[agent_type])
    out.rows(found, _QUOTAS)
    if out.is_table and not found:
        failure.note(f"any number of tasks of {agent_type} may be queued")


def _named(agent_type: str, task_type: str | None) -> str:
    return agent_type if task_type is None else f"{task_type} of {agent_type}"


def _state(worker: WorkerState) -> str:
    return "alive" if worker.is_alive else "silent"


_WORKERS = (
    Column("WORKER", "agent_id"),
    Column("RUNNING", lambda worker: f"{worker.running}/{worker.concurrency}"),
    Column("STATE", _state, is_status=True),
    Column("SEEN", "last_seen_at", is_age=True),
    Column("WORKED", "worked_at", is_age=True, spare=3),
    Column("TASK TYPES", lambda worker: " ".join(worker.task_types), may_shrink=True),
    Column("HOST", lambda worker: f"{worker.host}:{worker.pid}", may_shrink=True, spare=2),
    Column("VERSION", "version", may_shrink=True, spare=1),
)
_WORKER: Sequence[tuple[str, Cell]] = (
    ("id", "agent_id"),
    ("status", _state),
    ("pool", "agent_type"),
    ("running", lambda worker: f"{worker.running} of {worker.concurrency} slots"),
    ("task types", lambda worker: " ".join(worker.task_types)),
    ("host", "host"),
    ("pid", "pid"),
    ("version", "version"),
    ("lease", lambda worker: f"{worker.lease_seconds:g} s"),
    ("started", "started_at"),
    ("last heartbeat", "last_seen_at"),
    ("last claim", "worked_at"),
)


@click.command("list", cls=Command, examples=["grns worker list", "grns worker list -o json"])
@paged(_WORKERS, nothing="no workers")
async def list_workers(session: CliSession, **page: Any) -> Page[WorkerState]:
    """List workers by pool, HTTP workers and silent workers included."""
    return await registry.list_workers(session.database, workspace=session.workspace, **page)


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
        page = await registry.list_workers(
            session.database, workspace=session.workspace, limit=_PAGE, after=after
        )
        worker = next((one for one in page.rows if one.agent_id == worker_id), None)
        if worker is not None:
            out.details(worker, _WORKER)
            return
        after = page.next_cursor
        if after is None:
            raise NotFoundError(f"there is no worker {worker_id[:100]} in workspace {session.workspace}")
