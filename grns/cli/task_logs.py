"""`grns task logs`."""

from __future__ import annotations

import json
from typing import Any, get_args

import click

from grns.cli import option
from grns.cli.group import Command
from grns.cli.output import Column, Output, output_option
from grns.cli.session import CliSession, with_session
from grns.diagnose.task_log import MOST_LINES, read_task_log
from grns.model.log_line import Level, TaskLogLine


def _says(line: TaskLogLine) -> str:
    said = " ".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in (line.fields or {}).items()
    )
    return f"{line.message} {said}".strip()


_LINES = (
    Column("TIME", "at", is_age=True),
    Column("LEVEL", "level"),
    Column("ATTEMPT", lambda line: "" if line.attempt is None else str(line.attempt), spare=2),
    Column("SOURCE", "source", spare=1),
    Column("MESSAGE", _says, may_shrink=True),
)


@click.command(
    cls=Command, examples=["grns task logs TASK_ID", "grns task logs TASK_ID --level WARN -o json"]
)
@option.task_id
@click.option(
    "--level",
    type=click.Choice(get_args(Level), case_sensitive=False),
    default="DEBUG",
    show_default=True,
    help="The lowest level.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, MOST_LINES),
    default=200,
    show_default=True,
    help="How many lines at most.",
)
@output_option
def logs(out: Output, **given: Any) -> None:
    """Show the log of a task: what became of it, and what its handlers have logged."""
    _logs(out, **given)


@with_session("read", missing="grns task list")
async def _logs(session: CliSession, out: Output, task_id: str, level: Level, limit: int) -> None:
    lines = await read_task_log(
        session.database, task_id, workspace=session.workspace, level=level, limit=limit
    )
    out.rows(lines, _LINES, now=await session.now())
