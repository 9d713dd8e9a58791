"""`grns agent …`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.mail import mail
from grns.cli.output import Cell, Column, Output, output_option, text
from grns.cli.session import CliSession, paged, with_session
from grns.model.agent import HEALTHS, Agent
from grns.postgres.paging import Page

_LIST = "grns agent list"
_NAME = click.argument("name", metavar="NAME", type=option.Token("name"))
_REASON = click.option("--reason", metavar="TEXT", help="Why; shown and logged.")


def _task(agent: Agent) -> str:
    percent = "" if agent.progress_percent is None else f"{agent.progress_percent:.0f} %"
    return " ".join(filter(None, (agent.current_task_id, percent, agent.current_step)))


_COLUMNS = (
    Column("NAME", "name"),
    Column("POOL", "agent_type"),
    Column("HEALTH", "health", is_status=True),
    Column("STATUS", "status", is_status=True),
    Column("TASKS", "running"),
    Column("SEEN", "last_seen_at", is_age=True),
    Column("ORDER", "order", spare=3),
    Column("MODEL", "model", may_shrink=True, spare=2),
    Column("CAPABILITIES", lambda one: " ".join(one.capabilities), may_shrink=True, spare=1),
)
_FIELDS: Sequence[tuple[str, Cell]] = (
    ("name", "name"),
    ("pool", "agent_type"),
    ("title", "title"),
    ("model", "model"),
    ("capabilities", lambda one: " ".join(one.capabilities)),
    ("tasks at most", "max_concurrent_tasks"),
    ("health", "health"),
    ("status", "status"),
    ("tasks", "running"),
    ("current task", _task),
    ("memory, MiB", "memory_mb"),
    ("CPU, %", "cpu_percent"),
    ("worker", "agent_id"),
    ("started", "started_at"),
    ("last seen", "last_seen_at"),
    ("next expected", "next_expected_at"),
    ("order", "order"),
    ("ordered by", "ordered_by"),
    ("reason", "order_reason"),
    ("URL", "agent_url"),
    ("session", "session_key"),
    ("registered", "created_at"),
)
_TASKS = (
    Column("ID", "id"),
    Column("STATUS", "status", is_status=True),
    Column("TYPE", "task_type", may_shrink=True),
    Column("ATTEMPT", "attempt"),
    Column("STARTED", "started_at", is_age=True),
    Column("PROGRESS", lambda one: "" if one.progress_percent is None else f"{one.progress_percent:.0f} %"),
    Column("STEP", "current_step", may_shrink=True),
)


@click.group(cls=Group)
def agent() -> None:
    """Register agents, see whether they are there, send them mail, and end them."""


agent.add_command(mail)


@agent.command("list", examples=["grns agent list", "grns agent list --health stale --pool coder"])
@click.option("--pool", metavar="POOL", type=option.Token("pool"), help="Only those of this pool.")
@click.option("--health", type=click.Choice(HEALTHS), help="Only those of this health.")
@click.option(
    "--capability", metavar="NAME", type=option.Token("capability"), help="Only those that have it."
)
@paged(_COLUMNS, nothing="no such agents")
async def list_(session: CliSession, **fields: Any) -> Page[Agent]:
    """List agents by name."""
    return await session.client.agents.list(**fields)


@agent.command(examples=["grns agent show coder-1", "grns agent show coder-1 -o json"])
@_NAME
@output_option
@with_session("read", missing=_LIST)
async def show(session: CliSession, out: Output, name: str) -> None:
    """Show an agent: what is registered, whether it is there, and what it does."""
    out.details(await session.client.agents.get(name), _FIELDS)


@agent.command(
    examples=[
        "grns agent register coder-1 --pool coder",
        "grns agent register coder-1 --pool coder --capability python --model small-1 --max-tasks 2",
    ]
)
@_NAME
@click.option("--pool", metavar="POOL", required=True, type=option.Token("pool"), help="Its pool.")
@click.option("--title", metavar="TEXT", help="What people call it.")
@click.option("--model", metavar="TEXT", help="The model that it uses.")
@click.option(
    "--capability", "capabilities", metavar="NAME", multiple=True, type=option.Token("capability"),
    help="What it can do, repeatable.",
)  # fmt: skip
@click.option(
    "--max-tasks", "max_concurrent_tasks", type=click.IntRange(1), help="Tasks at once. Defaults to 1."
)
@click.option(
    "--heartbeat", "heartbeat_interval_seconds", type=float, metavar="SECONDS",
    help="Time between two heartbeats. Defaults to 10.",
)  # fmt: skip
@click.option(
    "--stale", "stale_threshold_seconds", type=float, metavar="SECONDS",
    help="Time without a heartbeat after which it is stale. Defaults to 100.",
)  # fmt: skip
@click.option("--url", "agent_url", metavar="URL", help="Where it is told that a task waits.")
@click.option(
    "--spawn", "coordinator_enabled", is_flag=True, default=None,
    help="Begin a session for it at GRNS_SPAWN_URL if a task waits while it is away.",
)  # fmt: skip
@output_option
@with_session("write")
async def register(session: CliSession, /, out: Output, name: str, pool: str, **fields: Any) -> None:
    """Register the agent NAME, or replace what is registered."""
    said = {key: value for key, value in fields.items() if value is not None}
    found = await session.client.agents.put(name, pool=pool, **said)
    out.record(found, lambda: text(found.name))
    failure.note(f"start it: grns worker start MODULE:POOL --agent {found.name}")


@agent.command(examples=["grns agent tasks coder-1", "grns agent tasks coder-1 -o json"])
@_NAME
@output_option
@with_session("read", missing=_LIST)
async def tasks(session: CliSession, out: Output, name: str) -> None:
    """List the tasks that an agent runs, the oldest first, and those that wait for it alone."""
    found = await session.client.agents.tasks(name)
    out.rows(found, _TASKS, nothing="it runs no task, and none waits for it", now=await session.now())


@agent.command(
    examples=["grns agent terminate coder-1", "grns agent terminate coder-1 --now --reason 'it loops'"]
)
@_NAME
@click.option("--now", "is_now", is_flag=True, help="Do not let it finish its tasks: they run elsewhere.")
@_REASON
@output_option
@with_session("write", missing=_LIST)
async def terminate(session: CliSession, out: Output, name: str, is_now: bool, reason: str | None) -> None:
    """Tell an agent to end once its tasks have ended, or at once."""
    found = await session.client.agents.terminate(name, reason=reason, graceful=not is_now)
    out.record(found, lambda: text(f"{found.name} is told to {found.order}"))


@agent.command(examples=["grns agent resume coder-1", "grns agent resume coder-1 -o json"])
@_NAME
@output_option
@with_session("write", missing=_LIST)
async def resume(session: CliSession, out: Output, name: str) -> None:
    """Take back the order that an agent was given."""
    found = await session.client.agents.resume(name)
    out.record(found, lambda: text(f"{found.name} works"))


@agent.command(examples=["grns agent delete coder-1", "grns agent delete coder-2"])
@_NAME
@with_session("write", missing=_LIST)
async def delete(session: CliSession, name: str) -> None:
    """Forget an agent that is not there."""
    await session.client.agents.delete(name)
