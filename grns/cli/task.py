"""`grns task …`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

from grns.cli import actions, failure, option
from grns.cli.batch import submit_many
from grns.cli.detail import show_events, show_task
from grns.cli.filter import filter_options, filters, read_filter, with_saved
from grns.cli.group import Group
from grns.cli.output import Column, Output, json_line, output_option, text
from grns.cli.question import question
from grns.cli.session import CliSession, paged, with_session
from grns.cli.task_edit import AT_EXAMPLE, PRIORITY_HELP, edit
from grns.cli.task_labels import label_options
from grns.cli.task_logs import logs
from grns.cli.task_pause import pause, resume
from grns.cli.task_steps import reset, signal, steps
from grns.cli.task_tail import tail
from grns.cli.task_wait import note_cause, wait, wait_for_end, watch
from grns.cli.usage import usage
from grns.client.arguments import WIRE
from grns.errors import GrnsError, InvalidInputError
from grns.model.filter import Filter
from grns.model.json import dumps
from grns.model.submission import submission
from grns.model.task import TaskStatus
from grns.model.text import attempts_of
from grns.operations.model import Action
from grns.postgres.paging import Page
from grns.settings import load
from grns.stats.counts import count_states
from grns.tasks import search, secrets
from grns.tasks.search import TaskSummary

_EXAMPLE = """grns task submit {task_type} --payload '{{"key": "value"}}'"""
_BAD = "bad_submission"
_JSON_NAMES = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def _attempts(task: TaskSummary) -> str:
    return attempts_of(task.attempt - task.uncounted_attempts, task.max_attempts, "/")


def _done(task: TaskSummary) -> str:
    if task.progress_percent is None or task.status != "running":
        return ""
    return f"{task.progress_percent:.0f} %"


_COLUMNS = (
    Column("ID", "id"),
    Column("TYPE", "task_type", may_shrink=True),
    Column("TITLE", lambda task: task.title or "", may_shrink=True, spare=3),
    Column("POOL", "agent_type", may_shrink=True, spare=2),
    Column("PRIO", "priority", spare=4),
    Column("STATUS", "status", is_status=True),
    Column("DONE", _done, spare=2),
    Column("ATTEMPT", _attempts, spare=3),
    Column("CREATED", "created_at", is_age=True, spare=1),
    Column("CHANGED", "updated_at", is_age=True, spare=5),
    Column("ERROR", "error_class", may_shrink=True),
)
_COUNTS = (Column("STATUS", "status", is_status=True), Column("TASKS", "count"))
_IDS = click.argument("ids", metavar="[ID]...", nargs=-1, type=option.TASK_ID)


@click.group(cls=Group)
def task() -> None:
    """Submit, list, show, edit, cancel, redrive and discard tasks."""


@task.command(
    examples=[
        """grns task submit fetch_page --payload '{"url": "https://example.org"}' --wait""",
        "grns task submit send_report --pool reports --delay 1h --payload @report.json --needs TASK_ID",
    ]
)
@click.argument("task_type", metavar="TYPE", type=option.Token("task_type", code=_BAD))
@click.option("--payload", metavar="JSON", help="A JSON object, @FILE, or - for standard input.")
@click.option(
    "--pool", "agent_type", metavar="NAME", default="worker", show_default=True, help="Pool that runs it."
)
@click.option(
    "--priority",
    type=option.Whole(0, 3, code=_BAD),
    default=2,
    show_default=True,
    help=PRIORITY_HELP,
)
@click.option(
    "--delay",
    "delay_seconds",
    type=option.Duration(code=_BAD),
    metavar="TIME",
    default=0.0,
    help="Delay before it is queued: 30, 5m, 2h, 1d.",
)
@click.option(
    "--at",
    "run_at",
    type=option.Moment(is_ago=False),
    metavar="TIME",
    help=f"Time at which it is queued: {AT_EXAMPLE}.",
)
@click.option(
    "--max-attempts",
    type=option.Whole(1, 1000, code=_BAD),
    help="Maximum attempts. Defaults to the handler's setting.",
)
@click.option(
    "--estimate",
    type=option.Duration(code=_BAD),
    metavar="TIME",
    help="How long an attempt is expected to take: 30, 5m, 2h, 1d.",
)
@click.option(
    "--agent", "target_agent", metavar="NAME", type=option.Token("agent", code=_BAD),
    help="The only agent that may run it.",
)  # fmt: skip
@click.option(
    "--requires",
    "required_capabilities",
    metavar="CAPABILITY",
    multiple=True,
    type=option.Token("capability", code=_BAD),
    help="What an agent must be able to do to run it, repeatable.",
)
@click.option(
    "--idempotency-key", metavar="KEY", help="Idempotency key: the same key returns the existing task."
)
@click.option(
    "--unique",
    metavar="JSON",
    type=option.UNIQUE,
    help="""Merge it into a task that waits to begin: '{"key": "doc_id"}'.""",
)
@click.option("--trace-id", metavar="ID", help="Trace id of the task.")
@click.option(
    "--needs",
    metavar="ID[:OUTCOME]",
    multiple=True,
    type=option.NEED,
    help="Task that must end before: :success (default), :failure or :end.",
)
@click.option(
    "--required", type=option.Whole(1, 10_000, code=_BAD), help="How many needs must be met. Defaults to all."
)
@label_options(_BAD)
@click.option("--created-by", metavar="NAME", help="Who asks for it.")
@click.option(
    "--backoff",
    metavar="JSON",
    type=option.Checked(option.read_json, name="backoff", code=_BAD),
    help="""Delays between its attempts, instead of the handler's: '{"base_seconds": 60}'.""",
)
@click.option("--wait", "is_waiting", is_flag=True, help="Wait until the task ends, and show it.")
@option.timeout_option
@output_option
def submit(
    out: Output,
    payload: str | None,
    estimate: float | None,
    is_waiting: bool,
    timeout: float | None,
    **fields: Any,
) -> None:
    """Submit a task of TYPE."""
    try:
        content = option.read_json(payload)
        if not isinstance(content, dict):
            kind = _JSON_NAMES.get(type(content), "a number")
            raise InvalidInputError(_BAD, f"the payload must be a JSON object, not {kind}")
    except InvalidInputError as error:
        raise failure.hinted(error, _EXAMPLE.format(task_type=fields["task_type"])) from error
    fields |= {"payload": content, "estimated_duration_minutes": None if estimate is None else estimate / 60}
    # Everything that can be invalid is reported before a connection is opened.
    dumps(submission(**fields).payload, load().payload_limits)
    _submit(out, fields, is_waiting, timeout)


@with_session("write")
async def _submit(
    session: CliSession, out: Output, fields: dict[str, Any], is_waiting: bool, timeout: float | None
) -> None:
    said = {WIRE.get(name, name): value for name, value in fields.items()}
    if (minutes := said.pop("estimate")) is not None:
        said["estimate"] = minutes * 60
    submitted = await session.client.submit(said.pop("task"), **said)
    if is_waiting:
        failure.note(f"task {submitted.id}: waiting for its end")
        await wait_for_end(session, out, submitted.id, timeout)
        return
    record = {"id": submitted.id, "created": submitted.created, "trace_id": submitted.trace_id}
    out.record(record, lambda: text(submitted.id))
    if not submitted.created:
        failure.note("nothing was created: its idempotency key has this task, or it was merged into it")
    elif out.is_table:
        with suppress(GrnsError):
            await note_cause(session, submitted.id)


task.add_command(submit_many)
task.add_command(steps)
task.add_command(signal)
task.add_command(reset)
task.add_command(question)
task.add_command(wait)
task.add_command(watch)
task.add_command(tail)
task.add_command(logs)
task.add_command(usage)


@task.command(
    "list",
    examples=[
        "grns task list status:dead 'type:fetch_*' 'age:<1h'",
        "grns task list --saved-filter flaky -o json",
    ],
)
@filter_options
@click.option(
    "--status",
    type=click.Choice([status.value for status in TaskStatus]),
    metavar="STATUS",
    help="Only tasks with this status.",
)
@option.TASK_TYPE
@click.option(
    "--pool", "agent_type", metavar="NAME", type=option.Token("agent_type"), help="Only tasks of this pool."
)
@paged(_COLUMNS, nothing="no such tasks")
async def list_tasks(
    session: CliSession,
    query: Filter,
    saved: str | None,
    status: str | None,
    task_type: str | None,
    agent_type: str | None,
    **page: Any,
) -> Page[TaskSummary]:
    """List the tasks that match all TERMs, the latest first. Without a TERM, list all.

    TERM is status:dead, type:fetch_*, pool:worker, error:Timeout*, attempt:>2, age:<1h, payload.url:… or the
    beginning of an id; `grns task filter fields` lists all. Write '-status:dead' after -- or in --filter.
    """
    named = {"status": status, "type": task_type, "pool": agent_type}
    terms = [f"{name}:{value}" for name, value in named.items() if value]
    query = await with_saved(session, read_filter(str(query), *terms), saved)
    return await search.list_tasks(session.database, workspace=session.workspace, wanted=query, **page)


@task.command("count", examples=["grns task count", "grns task count status:dead type:fetch_page"])
@filter_options
@output_option
@with_session("read")
async def count_tasks(session: CliSession, out: Output, query: Filter, saved: str | None) -> None:
    """Count the tasks that match all TERMs. Without a TERM, count the tasks by status."""
    if not query.terms and saved is None:
        states = await count_states(session.database, workspace=session.workspace)
        rows = [{"status": status, "count": count} for status, count in states.items()]
        out.rows(rows, _COUNTS, total=sum(states.values()))
        return
    query = await with_saved(session, query, saved)
    count = await search.count(session.database, workspace=session.workspace, wanted=query)
    record = {"count": count.number, "is_exact": count.is_exact}
    out.record(record, lambda: text(str(count.number)))
    if out.is_table and not count.is_exact:
        failure.note("at least: not everything was searched")


@task.command(examples=["grns task show TASK_ID", "grns task show TASK_ID -o json"])
@option.task_id
@output_option
@with_session("read")
async def show(session: CliSession, out: Output, task_id: str) -> None:
    """Show a task with its payload, result and attempts."""
    await show_task(session, out, task_id)


@task.command(examples=["grns task reveal TASK_ID", "grns task reveal TASK_ID --reason 'ticket 4711'"])
@option.task_id
@click.option("--reason", metavar="TEXT", help="Why; it stands in the log.")
@with_session("read")
async def reveal(session: CliSession, task_id: str, reason: str | None) -> None:
    """Show the payload of a task with its secrets. The log says who has seen it.

    It needs the keys of GRNS_KEYS_FILE.
    """
    payload = await secrets.reveal(
        session.database, task_id, workspace=session.workspace, actor=session.actor, reason=reason
    )
    click.echo(json_line(payload))


@task.command(examples=["grns task events TASK_ID", "grns task events TASK_ID -o jsonl"])
@option.task_id
@output_option
@with_session("read")
async def events(session: CliSession, out: Output, task_id: str) -> None:
    """List a task's events in order."""
    await show_events(session.client, out, task_id)


@task.command(
    examples=[
        "grns task cancel TASK_ID --reason duplicate",
        "grns task cancel --filter 'type:fetch_page age:>1d'",
    ]
)
@_IDS
@actions.action_options(Action.CANCEL)
def cancel(**given: Any) -> None:
    """Cancel tasks. A running task is asked to stop and can still succeed.

    With --filter or --saved-filter, cancel all matching tasks as a bulk operation: it is counted first and
    runs in the background.
    """
    actions.act(action=Action.CANCEL, **given)


@task.command(
    examples=[
        """grns task redrive TASK_ID --patch '{"url": "https://example.org"}'""",
        "grns task redrive --filter 'type:fetch_page error:Timeout*' --canary --rate 600/min",
    ]
)
@_IDS
@actions.action_options(Action.REDRIVE)
def redrive(**given: Any) -> None:
    """Redrive (run again) dead, failed or cancelled tasks, with their attempts reset.

    With --patch, each payload is changed first. With --filter or --saved-filter, redrive all matching tasks
    as a bulk operation: it is counted first and runs in the background, at a --rate, after a --canary, in
    another pool.
    """
    actions.act(action=Action.REDRIVE, **given)


@task.command(
    examples=[
        'grns task discard TASK_ID --reason "ordered twice"',
        "grns task discard --filter 'type:fetch_page age:>30d' --dry-run",
    ]
)
@_IDS
@actions.action_options(Action.DISCARD)
def discard(**given: Any) -> None:
    """Discard dead, failed or cancelled tasks: hide them from lists.

    With --filter or --saved-filter, discard all matching tasks as a bulk operation: it is counted first and
    runs in the background.
    """
    actions.act(action=Action.DISCARD, **given)


for command in (edit, pause, resume):
    task.add_command(command)
task.add_command(filters)
