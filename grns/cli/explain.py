"""`grns explain TASK`: why a task is where it is, and what happened to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from grns.bootstrap import tools
from grns.cli import failure, option
from grns.cli.group import Command
from grns.cli.output import Column, Output, heading, output_option, passage, table, text

if TYPE_CHECKING:
    from grns.diagnose.explain.reason import Explanation

_SHOWN = 40


@click.command(cls=Command)
@click.argument("task_id", metavar="TASK", type=option.TASK_ID)
@output_option
def explain(out: Output, task_id: str) -> None:
    """Explain why a task has its status, what helps, and what happened to it.

    It reads the task, the event log, its pool and the broker, and changes nothing. The broker may be down.
    """
    found = asyncio.run(_explain(task_id))
    out.record(asdict(found), lambda: _draw(found))


async def _explain(task_id: str) -> Explanation:
    from grns.cli.session import reading
    from grns.errors import UnavailableError

    async with reading() as session:
        try:
            with suppress(UnavailableError):  # then it says so itself, where it matters
                await session.transport.connect()
            return await tools.explainer(session.app, session.database, session.transport).explain(task_id)
        finally:
            await session.transport.close()


def _draw(found: Explanation) -> None:
    text(found.sentence)
    for one in found.reasons[1:]:
        text(f"  besides, {one.sentence}" if one.word != "issue" else f"  {one.sentence}")
    for command in found.next_steps:
        text(f"  try: {command}")
    if found.traceback:
        passage("traceback", found.traceback)
    if not found.steps:
        failure.note("the log about this task has been deleted")
        return
    heading("what happened")
    if len(found.steps) > _SHOWN:
        failure.note(f"the last {_SHOWN} steps; grns task events {found.task_id} has all")
    table([asdict(step) for step in found.steps[-_SHOWN:]], _columns())


def _columns() -> Sequence[Column]:
    from grns.text import lasted

    return [
        Column("AT", lambda row: row["at"], spare=1),
        Column("AFTER", lambda row: lasted(row["after_seconds"])),
        Column("V", lambda row: row["version"], spare=2),
        Column("#", lambda row: row["attempt"], spare=3),
        Column("WHAT", lambda row: row["sentence"], may_shrink=True, wraps=True),
    ]
