"""`grns archive …`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click

from grns.archive.archive import KINDS, TASKS
from grns.archive.reader import ArchiveReader
from grns.archive.restore import RestoreAnswer, restore_tasks
from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import Column, Output, output_option
from grns.cli.progress import progress
from grns.cli.session import CliSession, with_session
from grns.errors import InvalidInputError, SettingsError
from grns.model.secret import mask_text
from grns.model.text import counted, sized
from grns.runtime.place import FilePlace, open_place
from grns.runtime.signals import end_on_signals

_TASK_PREFIX = "gr-"
_LONGEST_KEEP_SECONDS = 36_525 * 86_400.0
_ARCHIVES = (
    Column("NAME", "name"),
    Column("ROWS", "rows"),
    Column("SIZE", lambda one: sized(one.size), spare=2),
    Column("FROM", "first_at", is_age=True),
    Column("TO", "last_at", is_age=True),
    Column("WRITTEN", "written_at", is_age=True, spare=1),
)
_ANSWERS = (Column("TASK", "task_id"), Column("OUTCOME", "outcome"))
_MEANINGS = {
    "exists": "already there",
    "key_taken": "another task has the idempotency key now",
    "blob_missing": "neither Postgres nor the archive has a blob that the task refers to",
}


@click.group(cls=Group)
def archive() -> None:
    """List, show and restore what retention has deleted.

    Retention writes it there before it deletes it if GRNS_ARCHIVE names a directory or a bucket.
    """


def _place(session: CliSession) -> FilePlace:
    said = session.app.settings.archive
    if not said:
        raise SettingsError(
            "nothing is archived: set GRNS_ARCHIVE, for the janitor and here, to a directory or s3://bucket/prefix"
        )
    return open_place(said, "GRNS_ARCHIVE")


def _reader(session: CliSession) -> ArchiveReader:
    return ArchiveReader(_place(session), session.workspace)


@archive.command("list", examples=["grns archive list", "grns archive list --kind events -o json"])
@click.option("--kind", type=click.Choice(KINDS), default=TASKS, show_default=True, help="What is archived.")
@option.page_options(option.CURSOR)
@output_option
@with_session("none")
async def list_(session: CliSession, out: Output, kind: str, *, limit: int, after: str | None) -> None:
    """List the archives with rows of the workspace, the latest first.

    FROM and TO are when the first and the last of its tasks ended, its events happened, or its mail was sent.
    """
    reader = _reader(session)
    page = await reader.list(kind=kind, limit=limit, after=after)
    out.page(page, _ARCHIVES, nothing="no archives", now=datetime.now(UTC))
    _conclude_reading(reader)


@archive.command(examples=["grns archive show TASK_ID", "grns archive show ARCHIVE > rows.jsonl"])
@click.argument("what", metavar="TASK_ID|ARCHIVE")
@click.option("--events", "has_events", is_flag=True, help="The archived events of the task instead.")
@with_session("none", missing="grns archive list")
async def show(session: CliSession, what: str, has_events: bool) -> None:
    """Print an archived task, or the rows of an archive, as JSON lines.

    ARCHIVE is a name from `grns archive list`. A task has its row in the table "tasks", and its rows in the
    other tables: steps, lines of its log, labels, questions, usage and so on. --events reads all archives of
    events that were written in the time of the task.
    """
    end_on_signals()
    reader = _reader(session)
    if what.startswith(_TASK_PREFIX):
        await (_show_events if has_events else _show_task)(reader, what)
    elif has_events:
        raise click.UsageError("--events are those of a task: name its id")
    else:
        async for line in reader.rows(what):
            _print(line)
    _conclude_reading(reader)


async def _show_task(reader: ArchiveReader, task_id: str) -> None:
    _print((await reader.task(task_id)).line)


async def _show_events(reader: ArchiveReader, task_id: str) -> None:
    task, count = await reader.task(task_id), 0
    with progress(has_lines=False) as show_progress:
        async for line in reader.events_of(task, lambda done, total: show_progress(done, total, "archives")):
            _print(line)
            count += 1
    failure.note(
        f"{counted(count, 'event')}; later ones may be in the log: grns events export --task {task_id}"
    )


def _conclude_reading(reader: ArchiveReader) -> None:
    """Say which archives could not be read."""
    for name, why in reader.unread.items():
        failure.note(f"{name} was passed over: {why}")
    if reader.unread:
        raise click.exceptions.Exit(failure.FAILED)


def _print(line: str) -> None:
    sys.stdout.write(f"{mask_text(line)}\n")


def _check_keep(seconds: float) -> None:
    if not 0 <= seconds <= _LONGEST_KEEP_SECONDS:
        raise InvalidInputError("bad_keep", "tasks are kept for 0 seconds to 100 years")


@archive.command(
    examples=["grns archive restore TASK_ID --reason 'audit 4711'", "grns archive restore ARCHIVE --keep 90d"]
)
@click.argument("what", metavar="TASK_ID|ARCHIVE", nargs=-1, required=True)
@click.option(
    "--keep",
    "keep_seconds",
    type=option.Duration(code="bad_keep", check=_check_keep),
    default="30d",
    show_default=True,
    metavar="DURATION",
    help="Retention leaves them alone for so long, from now on.",
)
@option.REASON
@option.sure_options
@output_option
@with_session("read", missing="grns archive list")
async def restore(
    session: CliSession,
    out: Output,
    what: Sequence[str],
    keep_seconds: float,
    reason: str | None,
    is_trial: bool,
    is_sure: bool,
) -> None:
    """Put tasks back as they were archived last: by their ids, or all of an archive.

    Steps, log lines, labels, blobs and results come back with them. Events do not: `grns archive show
    TASK_ID --events` reads them. A task is left out if it is there (exists), if another one has its
    idempotency key (key_taken), or if one of its blobs is lost (blob_missing): the exit code is 4 then.
    """
    place = _place(session)
    reader = ArchiveReader(place, session.workspace)
    ids = [one for one in what if one.startswith(_TASK_PREFIX)]
    for name in what:
        ids += [] if name.startswith(_TASK_PREFIX) else await reader.ids_in(name)
    tasks = await reader.tasks(ids)
    option.confirm(
        f"restore {counted(len(tasks), 'task')}", is_sure=is_sure, is_trial=is_trial, count=len(tasks)
    )
    with progress() as show_progress:
        answers = await restore_tasks(
            session.database,
            place,
            tasks,
            keep=timedelta(seconds=keep_seconds),
            actor=session.actor,
            reason=reason,
            progress=lambda done, total: show_progress(done, total, "restored"),
        )
    _conclude(out, answers)


def _conclude(out: Output, answers: Sequence[RestoreAnswer]) -> None:
    out.rows(answers, _ANSWERS)
    left = [answer.outcome for answer in answers if answer.outcome != "restored"]
    failure.note(f"{len(answers) - len(left)} restored")
    for outcome in dict.fromkeys(left):
        failure.note(f"{left.count(outcome)} not restored: {_MEANINGS[outcome]}")
    if left:
        raise click.exceptions.Exit(failure.CONFLICT)
