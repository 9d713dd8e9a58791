"""`grns task wait` and `grns task watch`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime

import click

from grns.cli import failure, option
from grns.cli.detail import show_task
from grns.cli.group import Command
from grns.cli.output import Output, output_option
from grns.cli.progress import progress
from grns.cli.session import CliSession, with_session
from grns.diagnose.explain.queued import standing
from grns.diagnose.explain.read import read_situation
from grns.errors import GrnsError, WaitTimeoutError
from grns.model.text import lasted

_CLAIMED_LATER = ("waiting", "queued", "retry_wait")
# Sooner than this, a task without an obstacle is claimed.
_NOTE_SECONDS = 3.0
_LONGEST_NOTE_SECONDS = 60.0
_LOOK_SECONDS = 0.5


@click.command(
    cls=Command, examples=["grns task wait TASK_ID", "grns task wait TASK_ID --timeout 5m -o json"]
)
@option.task_id
@option.timeout_option
@output_option
@with_session("read")
async def wait(session: CliSession, out: Output, task_id: str, timeout: float | None) -> None:
    """Wait until a task ends. Exit code 0: succeeded, 1: did not succeed, 6: timeout."""
    await wait_for_end(session, out, task_id, timeout)


@click.command(cls=Command, examples=["grns task watch TASK_ID", "grns task watch TASK_ID --timeout 1h"])
@option.task_id
@option.timeout_option
@output_option
@with_session("read")
async def watch(session: CliSession, out: Output, task_id: str, timeout: float | None) -> None:
    """Show a task's progress until it ends. Exit codes are those of `grns task wait`."""
    await wait_for_end(session, out, task_id, timeout, has_bar=True)


async def wait_for_end(
    session: CliSession, out: Output, task_id: str, timeout: float | None, *, has_bar: bool = False
) -> None:
    """Wait until a task ends, and show it. Exits with 1 if it did not succeed."""
    beside = [asyncio.create_task(_note_obstacle(session, task_id))]
    if has_bar:
        beside.append(asyncio.create_task(_show_progress(session, task_id)))
    try:
        ended = await session.client.wait(task_id, timeout=timeout)
    except WaitTimeoutError as error:
        raise failure.hinted(error, f"grns explain {task_id}") from error
    finally:
        for one in beside:
            one.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
    await show_task(session, out, task_id)
    if ended.status != "succeeded":
        raise click.exceptions.Exit(failure.FAILED)


async def _show_progress(session: CliSession, task_id: str) -> None:
    """Show how far the latest attempt is, for as long as the task has not ended."""
    with progress() as show:
        while True:
            with suppress(GrnsError):  # the wait continues without it
                task = await session.client.get(task_id)
                parts = [f"{task.status}, attempt {task.attempt}" if task.attempt else task.status.value]
                if task.progress_percent is not None:
                    parts.append(f"{task.progress_percent:.0f} %")
                if task.current_step is not None:
                    parts.append(task.current_step)
                if task.is_overdue:
                    parts.append("overdue")
                elif task.estimated_completion_at is not None:
                    left = (task.estimated_completion_at - datetime.now(UTC)).total_seconds()
                    parts.append(f"{lasted(left)} left" if left > 0 else "longer than expected")
                show(
                    round(task.progress_percent or 0),
                    100 if task.progress_percent is not None else None,
                    ", ".join(parts),
                )
            await asyncio.sleep(_LOOK_SECONDS)


async def _note_obstacle(session: CliSession, task_id: str) -> None:
    """Write once why no worker can claim a task: its pool is paused, or no live worker handles its type."""
    pause = _NOTE_SECONDS
    while True:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_NOTE_SECONDS)
        with suppress(GrnsError):  # the wait continues without it
            if await note_cause(session, task_id):
                return


async def note_cause(session: CliSession, task_id: str) -> bool:
    """Write why no worker can claim a task; return False if one can."""
    seen = await read_situation(session.database, task_id, workspace=session.workspace)
    if seen is None or seen.task.status not in _CLAIMED_LATER or not (causes := standing(seen)):
        return False
    failure.note(f"task {task_id}: {causes[0].sentence}")
    for step in causes[0].next_steps:
        failure.note(f"  try: {step}")
    return True
