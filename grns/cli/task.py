"""`grns task …`: submit, list, count, show, events, wait, edit, cancel, redrive."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from grns.cli import bulk, failure, option
from grns.cli.batch import submit_many
from grns.cli.edit import edit
from grns.cli.filter import filter_options, read, together
from grns.cli.group import Group
from grns.cli.output import Column, Output, output_option, text, when
from grns.text import attempts_of

if TYPE_CHECKING:
    from grns.cli.session import CliSession
    from grns.model.filter import Filter

_EXAMPLE = """grns task submit {task_type} --payload '{{"key": "value"}}'"""
_BAD = "bad_submission"
_STATUSES = ("waiting", "queued", "running", "retry_wait", "succeeded", "failed", "dead", "cancelled")
_CLAIMED_LATER = ("waiting", "queued", "retry_wait")
# A task that nothing keeps from its worker is claimed sooner.
_POINT_SECONDS = 3.0
_LONGEST_POINT_SECONDS = 60.0
_TERM_OF = {"status": "state", "task_type": "type", "agent_type": "agent"}


@click.group(cls=Group)
def task() -> None:
    """Submit, show, edit, cancel and redrive tasks."""


@task.command()
@click.argument("task_type", metavar="TYPE", type=option.Token("task_type", code=_BAD))
@click.option("--payload", metavar="JSON", help="A JSON object, @FILE, or - for standard input.")
@click.option("--agent-type", metavar="NAME", default="worker", show_default=True, help="Pool that runs it.")
@click.option(
    "--priority",
    type=option.Whole(0, 3, code=_BAD),
    default=2,
    show_default=True,
    help="0 critical … 3 background.",
)
@click.option(
    "--delay",
    type=option.Duration(code=_BAD),
    metavar="TIME",
    default=0.0,
    help="Delay before it is queued: 30, 5m, 2h, 1d.",
)
@click.option(
    "--max-attempts",
    type=option.Whole(1, 1000, code=_BAD),
    help="Maximum attempts. Defaults to the handler's setting.",
)
@click.option(
    "--idempotency-key", metavar="KEY", help="Idempotency key: the same key returns the existing task."
)
@click.option("--trace-id", metavar="ID", help="Trace id of the task.")
@click.option("--wait", "is_waiting", is_flag=True, help="Wait until the task ends, and show it.")
@option.timeout_option
@output_option
def submit(out: Output, payload: str | None, is_waiting: bool, timeout: float | None, **fields: Any) -> None:
    """Submit a task of TYPE."""
    from grns.errors import InvalidInputError
    from grns.model.json import dumps, parse
    from grns.model.submission import submission
    from grns.settings import load

    limits = load().payload_limits
    try:
        content = parse(option.read_document(payload, limits.document_bytes), limits)
    except InvalidInputError as error:
        raise failure.hinted(error, _EXAMPLE.format(task_type=fields["task_type"])) from error
    if not isinstance(content, dict):
        other = InvalidInputError(_BAD, f"the payload is to be a JSON object, not {_kind_of(content)}")
        raise failure.hinted(other, _EXAMPLE.format(task_type=fields["task_type"]))
    fields["delay_seconds"] = fields.pop("delay")
    # All that can be wrong with it is found before anything is connected to.
    dumps(submission(payload=content, **fields).payload, limits)
    asyncio.run(_submit(out, {"payload": content, **fields}, is_waiting, timeout))


def _kind_of(content: object) -> str:
    kinds = {list: "an array", str: "a string", bool: "a truth value", type(None): "null"}
    return kinds.get(type(content), "a number")


async def _submit(out: Output, fields: dict[str, Any], is_waiting: bool, timeout: float | None) -> None:
    from grns.cli.session import writing

    async with writing() as session:
        submitted = await session.client.submit(**fields)
        if is_waiting:
            failure.note(f"task {submitted.id}: waiting for its end")
            await _await(session, out, submitted.id, timeout)
            return
    record = {"id": submitted.id, "is_new": submitted.is_new, "trace_id": submitted.trace_id}
    out.record(record, lambda: text(submitted.id))
    if not submitted.is_new:
        failure.note("the idempotency key has this task already: nothing was created")


@task.command("list")
@filter_options
@click.option("--status", type=click.Choice(_STATUSES), metavar="STATUS", help="state:STATUS")
@click.option("--type", "task_type", metavar="TYPE", type=option.Token("task_type"), help="type:TYPE")
@click.option("--agent-type", metavar="NAME", type=option.Token("agent_type"), help="agent:NAME")
@option.page_options(option.CursorType())
@output_option
def list_tasks(
    out: Output,
    limit: int,
    after: str | None,
    terms: Sequence[str],
    said: str | None,
    saved: str | None,
    **named: str | None,
) -> None:
    """List the tasks that match all TERMs, the latest first. Without a TERM, list all.

    TERM is state:dead, type:fetch_*, agent:worker, error:Timeout*, attempt:>2, age:<1h, payload.url:… or the
    beginning of an id; `grns filter terms` lists all. Write '-state:dead' after -- or in --filter.
    """
    wanted = read(*terms, said, *(f"{_TERM_OF[name]}:{value}" for name, value in named.items() if value))
    asyncio.run(_list(out, limit, after, wanted, saved))


async def _list(out: Output, limit: int, after: str | None, wanted: Filter, saved: str | None) -> None:
    from grns.cli.session import reading
    from grns.dead_letters import listing
    from grns.tasks import search as task_page

    async with reading() as session:
        page = await task_page.list_tasks(
            session.database,
            workspace=session.workspace,
            wanted=await together(session, wanted, saved),
            limit=limit,
            after=after,
        )
        now = await listing.now(session.database)
    columns = [
        Column("ID", lambda row: row["id"]),
        Column("TYPE", lambda row: row["task_type"], may_shrink=True),
        Column("AGENT TYPE", lambda row: row["agent_type"], may_shrink=True, spare=2),
        Column("PRIO", lambda row: row["priority"], spare=4),
        Column("STATUS", lambda row: row["status"], is_status=True),
        Column("ATTEMPT", _attempts, spare=3),
        Column("CREATED", lambda row: when(row["created_at"], now), spare=1),
        Column("CHANGED", lambda row: when(row["updated_at"], now), spare=5),
        Column("ERROR", lambda row: row["error_class"], may_shrink=True),
    ]
    out.rows(page.rows, columns, next_cursor=page.next_cursor, is_partial=page.is_partial)
    out.end(page.rows, page.next_cursor, nothing="no such tasks", is_partial=page.is_partial)


@task.command("count")
@filter_options
@output_option
def count_tasks(out: Output, terms: Sequence[str], said: str | None, saved: str | None) -> None:
    """Count the tasks that match all TERMs. Without a TERM, count the tasks by status."""
    wanted = read(*terms, said)
    asyncio.run(_count(out, wanted, saved))


async def _count(out: Output, wanted: Filter, saved: str | None) -> None:
    from grns.cli.session import reading
    from grns.stats.counts import count_states
    from grns.tasks import search as task_page

    async with reading() as session:
        if not wanted.terms and saved is None:
            states = await count_states(session.database, workspace=session.workspace)
            rows = [{"status": status, "count": count} for status, count in states.items()]
            columns = [
                Column("STATUS", lambda row: row["status"], is_status=True),
                Column("TASKS", lambda row: row["count"]),
            ]
            out.rows(rows, columns, total=sum(states.values()))
            return
        found = await task_page.count(
            session.database, workspace=session.workspace, wanted=await together(session, wanted, saved)
        )
    record = {"count": found.number, "is_exact": found.is_exact}
    out.record(record, lambda: text(str(found.number)))
    if out.is_table and not found.is_exact:
        failure.note("at least: not all was looked at")


def _attempts(row: Mapping[str, Any]) -> str:
    return attempts_of(row["attempt"] - row["uncounted_attempts"], row["max_attempts"], "/")


@task.command()
@option.task_id
@output_option
def show(out: Output, task_id: str) -> None:
    """Show a task with its payload, result and attempts."""
    from grns.cli.detail import show_task
    from grns.cli.session import reading

    async def look() -> None:
        async with reading() as session:
            await show_task(session.client, out, task_id)

    asyncio.run(look())


@task.command()
@option.task_id
@output_option
def events(out: Output, task_id: str) -> None:
    """List a task's events in order."""
    from grns.cli.detail import show_events
    from grns.cli.session import reading

    async def look() -> None:
        async with reading() as session:
            await show_events(session.client, out, task_id)

    asyncio.run(look())


@task.command()
@option.task_id
@option.timeout_option
@output_option
def wait(out: Output, task_id: str, timeout: float | None) -> None:
    """Wait until a task ends. Exit code 0: succeeded, 1: did not succeed, 6: timeout."""
    from grns.cli.session import reading

    async def look() -> None:
        async with reading() as session:
            await _await(session, out, task_id, timeout)

    asyncio.run(look())


async def _await(session: CliSession, out: Output, task_id: str, timeout: float | None) -> None:
    from grns.cli.detail import show_task
    from grns.errors import WaitTimeoutError

    pointing = asyncio.create_task(_point(session, task_id))
    try:
        ended = await session.client.wait(task_id, timeout_seconds=timeout)
    except WaitTimeoutError as error:
        raise failure.hinted(error, f"grns explain {task_id}") from error
    finally:
        pointing.cancel()
        await asyncio.gather(pointing, return_exceptions=True)
    await show_task(session.client, out, task_id)
    if ended.status != "succeeded":
        raise click.exceptions.Exit(failure.FAILED)


async def _point(session: CliSession, task_id: str) -> None:
    """Write once why no worker can claim a task: its pool is paused, or no live worker handles its type."""
    from grns.diagnose.explain.queued import standing
    from grns.diagnose.explain.read import read_situation
    from grns.errors import GrnsError

    pause = _POINT_SECONDS
    while True:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_POINT_SECONDS)
        with suppress(GrnsError):  # waiting goes on without it
            seen = await read_situation(session.database, task_id, workspace=session.workspace)
            if seen is not None and seen.task.status in _CLAIMED_LATER and (causes := standing(seen)):
                failure.note(f"task {task_id}: {causes[0].sentence}")
                failure.note(f"  try: grns explain {task_id}")
                return


@task.command()
@click.argument("ids", metavar="[ID...]", nargs=-1, type=option.TASK_ID)
@bulk.bulk_options
@option.sure_options
@output_option
def cancel(out: Output, ids: Sequence[str], reason: str | None, **said: Any) -> None:
    """Cancel tasks. A running task is asked to stop and can still succeed.

    With --filter, cancel all matching tasks as a bulk operation: it is counted first and runs in the
    background.
    """
    has_filter = said["wanted"] is not None or said["saved"] is not None
    if has_filter == bool(ids):
        raise click.UsageError("name some ids, or say --filter or --saved")
    if has_filter:
        bulk.run(out, "cancel", reason=reason, **said)
        return
    if any(said.values()):
        raise click.UsageError("--rate, --detach, --dry-run and --yes go with --filter")

    async def act(client: Any) -> dict[str, str]:
        answers: dict[str, str] = await client.cancel_many(ids, reason=reason)
        return answers

    _change(
        out, ids, act, expected={"cancelled", "requested"}, able="tasks that have not ended can be cancelled"
    )


@task.command()
@option.task_ids
@click.option("--reason", help="Reason, kept in the event log.")
@output_option
def redrive(out: Output, ids: Sequence[str], reason: str | None) -> None:
    """Run dead, failed or cancelled tasks again, with their attempts reset."""

    async def act(client: Any) -> dict[str, str]:
        answers: dict[str, str] = await client.redrive_many(ids, reason=reason)
        return answers

    _change(out, ids, act, expected={"redriven"}, able="dead, failed and cancelled tasks can be redriven")


task.add_command(edit)
task.add_command(submit_many)


def _change(out: Output, ids: Sequence[str], act: Any, *, expected: set[str], able: str) -> None:
    from grns.cli.session import writing

    async def change() -> dict[str, str]:
        async with writing() as session:
            answers: dict[str, str] = await act(session.client)
            return answers

    answers = asyncio.run(change())
    report(
        out, [{"id": task_id, "answer": answers.get(task_id, "not found")} for task_id in ids], expected, able
    )


def report(out: Output, answers: Sequence[Mapping[str, str]], expected: set[str], able: str) -> None:
    """Show what became of each, and end with the code of the worst that did."""
    columns = [Column("ID", lambda row: row["id"]), Column("ANSWER", lambda row: row["answer"])]
    out.rows(answers, columns)
    missing = sum(row["answer"] == "not found" for row in answers)
    others = [row for row in answers if row["answer"] not in expected | {"not found"}]
    if missing:
        failure.say(f"{missing} of {len(answers)} do not exist", "grns task list")
        raise click.exceptions.Exit(failure.NOT_FOUND)
    if others:
        first = f"{others[0]['id']} has the status {others[0]['answer']}"
        more = f", and so on with {len(others) - 1} more" if len(others) > 1 else ""
        failure.say(f"{first}{more}: only {able}")
        raise click.exceptions.Exit(failure.CONFLICT)
