"""`grns task pause` and `grns task resume`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import click

from grns.cli import actions, option
from grns.cli.group import Command
from grns.cli.output import Output, output_option
from grns.cli.session import CliSession, with_session
from grns.tasks.pause_tasks import pause_tasks, resume_tasks


def _command(
    verb: str, change: Callable[..., Awaitable[dict[str, str]]], help_text: str, done: str, able: str
) -> click.Command:
    @click.command(
        verb, cls=Command, help=help_text,
        examples=[f"grns task {verb} TASK_ID", f"grns task {verb} TASK_ID TASK_ID --reason maintenance"],
    )  # fmt: skip
    @click.argument("ids", metavar="ID...", nargs=-1, required=True, type=option.TASK_ID)
    @option.REASON
    @output_option
    @with_session("write")
    async def command(session: CliSession, out: Output, ids: tuple[str, ...], reason: str | None) -> None:
        answers = await change(
            session.database, session.transport, ids, workspace=session.workspace, actor=session.actor,
            reason=reason,
        )  # fmt: skip
        actions.report(out, ids, answers, done=(done,), able=able)

    return command


pause = _command(
    "pause",
    pause_tasks,
    "Pause tasks that do not run: they wait until you resume them.",
    "paused",
    "tasks that neither run nor have ended can be paused",
)
resume = _command("resume", resume_tasks, "Resume paused tasks.", "resumed", "paused tasks can be resumed")
