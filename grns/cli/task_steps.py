"""`grns task steps`, `grns task signal` and `grns task reset`."""

from __future__ import annotations

import json
import sys
from typing import Any
from uuid import UUID

import click

from grns.cli import option
from grns.cli.group import Command
from grns.cli.output import Column, Output, output_option, text
from grns.cli.session import CliSession, paged, with_session
from grns.model.text import shortened
from grns.postgres.paging import Page
from grns.tasks.steps import TaskStep

_VALUE_WIDTH = 100


def _value(step: TaskStep) -> str:
    if step.value is None and step.value_bytes > len("null"):
        return f"({step.value_bytes} bytes)"
    line = json.dumps(step.value, ensure_ascii=False)
    return shortened(line, _VALUE_WIDTH) if sys.stdout.isatty() else line


_STEPS = (
    Column("STEP", "name", may_shrink=True),
    Column("KIND", "kind"),
    Column("ATTEMPT", "attempt"),
    Column("RECORDED", "recorded_at", is_age=True, spare=1),
    Column("VALUE", _value, may_shrink=True, spare=2),
)


@click.command(cls=Command, examples=["grns task steps TASK_ID", "grns task steps TASK_ID -o json"])
@option.task_id
@paged(_STEPS, nothing="the task has recorded no steps")
async def steps(session: CliSession, task_id: str, **page: Any) -> Page[TaskStep]:
    """List the steps that a task's attempts have recorded."""
    found = await session.client.steps(task_id, **page)
    if not found.rows:
        await session.client.get(task_id)
    return found


@click.command(
    cls=Command,
    examples=[
        "grns task signal TASK_ID approved",
        """grns task signal TASK_ID approved --value '{"by": "ann"}'""",
    ],
)
@option.task_id
@click.argument("name", metavar="NAME")
@click.option("--value", metavar="JSON", default="null", help="Value: JSON, @FILE, or - for standard input.")
@click.option("--id", "signal_id", type=click.UUID, metavar="ID", help="Id of the signal: it is sent once.")
@output_option
def signal(out: Output, task_id: str, name: str, value: str, signal_id: UUID | None) -> None:
    """Send the signal NAME to a task, whose handler waits for it, or asks for it later."""
    _send(out, task_id, name, option.read_json(value), signal_id)


@with_session("write", missing="grns task list")
async def _send(
    session: CliSession, out: Output, task_id: str, name: str, value: Any, signal_id: UUID | None
) -> None:
    answer = await session.client.signal(task_id, name, value, signal_id=signal_id)
    out.record({"answer": answer}, lambda: text(answer))


@click.command(
    cls=Command,
    examples=[
        "grns task reset TASK_ID --to write_report",
        'grns task reset TASK_ID --to ask --reason "typo"',
    ],
)
@option.task_id
@click.option("--to", "step", metavar="STEP", required=True, help="Step to run again, with all after it.")
@option.REASON
@output_option
@with_session("write", missing="grns task steps {task_id}")
async def reset(session: CliSession, out: Output, task_id: str, step: str, reason: str | None) -> None:
    """Run an ended task again from one of its steps."""
    answer = await session.client.reset(task_id, to=step, reason=reason)
    out.record({"answer": answer}, lambda: text(answer))
