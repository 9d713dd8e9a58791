"""`grns events …`: what happens, as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import click

from grns.cli import failure, option
from grns.cli.group import Noun
from grns.cli.output import Output, output_option, text
from grns.cli.replay import replay

# A kind has two to four tokens behind `evt`: together these are all there can be.
_EVERYTHING = ("evt.*.*", "evt.*.*.*", "evt.*.*.*.*")

Seen = tuple[str, bytes, Mapping[str, str]]


@click.group(cls=Noun)
def events() -> None:
    """Follow what happens, or have what happened published again."""


events.add_command(replay)


@events.command()
@click.option(
    "--kind", "kinds", metavar="PATTERN", multiple=True, type=option.Kind(), help="Only evt.task.dead, …"
)
@click.option("--task", "task_id", metavar="ID", type=option.TASK_ID, help="Only what concerns this task.")
@output_option
def tail(out: Output, kinds: Sequence[str], task_id: str | None) -> None:
    """Print the workspace's events from now on, one a line, until Ctrl-C."""
    out.is_endless = True
    asyncio.run(_follow(out, kinds or _EVERYTHING, task_id))


async def _follow(out: Output, kinds: Sequence[str], task_id: str | None) -> None:
    from grns.cli.session import listening
    from grns.subjects import message

    seen: asyncio.Queue[Seen] = asyncio.Queue()
    async with listening() as (app, transport):
        workspace = app.settings.workspace
        for kind in kinds:
            await transport.observe(message(kind, workspace), lambda *what: seen.put_nowait(what))
        failure.note(f"following {', '.join(kinds)} of workspace {workspace}; Ctrl-C ends")
        while True:
            subject, body, headers = await seen.get()
            if task_id is None or headers.get("Grns-Task") == task_id:
                _print(out, subject, body, headers)


def _print(out: Output, subject: str, body: bytes, headers: Mapping[str, str]) -> None:
    from grns.cli.detail import summary
    from grns.envelope import decode
    from grns.errors import Rejected

    try:
        said = decode(body)
    except Rejected as error:  # anybody may publish here
        failure.note(f"{subject}: {error}")
        return
    record = {"subject": subject, "version": headers.get("Grns-Version"), **said.model_dump(mode="json")}
    task = headers.get("Grns-Task", "-")
    line = f"{said.emitted_at:%H:%M:%S.%f}"[:12] + f"Z  {said.kind:<26}  {task:<29}  {summary(said.payload)}"
    out.record(record, lambda: text(line))
