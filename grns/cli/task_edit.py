"""`grns task edit`."""

from __future__ import annotations

from typing import Any

import click

from grns.cli import failure, option
from grns.cli.detail import show_task
from grns.cli.group import Command
from grns.cli.output import Output, output_option
from grns.cli.session import CliSession, with_session
from grns.cli.task_labels import label_options
from grns.errors import InvalidInputError
from grns.model.submission import Edit
from grns.model.submission import edit as checked_edit

AT_EXAMPLE = "2026-12-24T09:00:00+01:00"
PRIORITY_HELP = "0 critical … 3 background."
_BAD_EDIT = "bad_edit"


@click.command(
    cls=Command,
    examples=[
        "grns task edit TASK_ID --priority 0 --reason urgent",
        """grns task edit TASK_ID --patch '{"url": "https://example.org"}'""",
    ],
)
@option.task_id
@click.option("--priority", type=option.Whole(0, 3, code=_BAD_EDIT), help=PRIORITY_HELP)
@click.option(
    "--delay",
    "delay_seconds",
    type=option.Duration(code=_BAD_EDIT),
    metavar="TIME",
    help="For a waiting task: new delay from now, 30, 5m, 2h, 1d.",
)
@click.option(
    "--at",
    "run_at",
    type=option.Moment(is_ago=False),
    metavar="TIME",
    help=f"For a waiting task: new time, {AT_EXAMPLE}.",
)
@click.option("--payload", metavar="JSON", help="New payload: a JSON object, @FILE, or - for standard input.")
@click.option("--patch", metavar="JSON", help="Merge patch of the payload (RFC 7396): JSON, @FILE, or -.")
@click.option(
    "--agent",
    "target_agent",
    metavar="NAME",
    type=option.Token("agent", code=_BAD_EDIT),
    help="Assign it to this agent: no other one may run it.",
)
@click.option(
    "--requires",
    "required_capabilities",
    metavar="CAPABILITY",
    multiple=True,
    type=option.Token("capability", code=_BAD_EDIT),
    help="Let only agents run it that can do this, repeatable.",
)
@label_options(_BAD_EDIT)
@click.option("--no-tags", is_flag=True, help="Remove all tags.")
@click.option("--any-worker", is_flag=True, help="Let any worker of its pool run it.")
@option.REASON
@output_option
def edit(
    out: Output, task_id: str, reason: str | None, any_worker: bool, no_tags: bool, **fields: Any
) -> None:
    """Change a task that is not running; its title, description, tags and metadata at any time.

    The event log keeps the previous values.
    """
    fields["tags"] = () if no_tags else fields["tags"] or None
    fields["required_capabilities"] = () if any_worker else fields["required_capabilities"] or None
    for name in ("payload", "patch"):
        if fields[name] is not None:
            fields[name] = option.read_json(fields[name])
    try:
        change = checked_edit(**fields)
    except InvalidInputError as error:
        raise failure.hinted(error, "grns task edit --help") from error
    _edit(out, change, reason, task_id=task_id)


@with_session("write", conflict="grns task show {task_id}")
async def _edit(session: CliSession, out: Output, change: Edit, reason: str | None, *, task_id: str) -> None:
    await session.triage.edit(task_id, change, actor=session.actor, reason=reason)
    await show_task(session, out, task_id)
