"""`grns task edit`: another priority, time or payload for a task that does not run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from grns.bootstrap import tools
from grns.cli import failure, option
from grns.cli.group import Command
from grns.cli.output import Output, output_option

if TYPE_CHECKING:
    from grns.model.task_edit import Edit

_BAD = "bad_edit"


@click.command(cls=Command)
@option.task_id
@click.option("--priority", type=option.Whole(0, 3, code=_BAD), help="0 critical … 3 background.")
@click.option(
    "--delay",
    "delay_seconds",
    type=option.Duration(code=_BAD),
    metavar="TIME",
    help="For a waiting task: new delay from now, 30, 5m, 2h, 1d.",
)
@click.option("--payload", metavar="JSON", help="New payload: a JSON object, @FILE, or - for standard input.")
@click.option("--patch", metavar="JSON", help="Merge patch of the payload (RFC 7396): JSON, @FILE, or -.")
@click.option("--reason", help="Reason, kept in the event log.")
@output_option
def edit(out: Output, task_id: str, reason: str | None, **said: Any) -> None:
    """Change a task that is not running. The event log keeps the previous values."""
    wanted = _edit(said)
    asyncio.run(_change(out, task_id, wanted, reason))


def _edit(said: dict[str, Any]) -> Edit:
    from grns.errors import InvalidInputError
    from grns.model.json import parse
    from grns.model.task_edit import edit as read_edit
    from grns.settings import load

    limits = load().payload_limits
    for name in ("payload", "patch"):
        if said[name] is not None:
            said[name] = parse(option.read_document(said[name], limits.document_bytes), limits)
    try:
        return read_edit(**said)
    except InvalidInputError as error:
        raise failure.hinted(error, "grns task edit --help") from error


async def _change(out: Output, task_id: str, wanted: Edit, reason: str | None) -> None:
    from grns.cli.detail import show_task
    from grns.cli.session import writing
    from grns.errors import ConflictError
    from grns.model.actor import of_process

    async with writing() as session:
        triage = tools.triage(session.app, session.database, session.transport)
        try:
            await triage.edit(task_id, wanted, actor=of_process("cli"), reason=reason)
        except ConflictError as error:
            raise failure.hinted(error, f"grns task show {task_id}") from error
        await show_task(session.client, out, task_id)
