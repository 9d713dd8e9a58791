"""Redrive, discard and cancel: tasks by their ids, or as a bulk operation on all that match a filter."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from grns.cli import failure, option
from grns.cli.filter import SAVED, read_filter, with_saved
from grns.cli.operation import watch_operation
from grns.cli.output import Column, Output, output_option, text
from grns.cli.session import CliSession, with_session
from grns.errors import ConflictError, InvalidInputError, NotFoundError
from grns.model.filter import Filter
from grns.model.submission import edit
from grns.model.text import counted
from grns.operations import model
from grns.operations.model import OBJECTS, Action, OperationRequest
from grns.operations.service import Preview, create_operation, preview
from grns.tasks import read

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|min|h))?", re.ASCII)
_PER_MINUTE = {"s": 60.0, "min": 1.0, "h": 1 / 60, None: 1.0}
MISSING = "not found"
_DONE = {
    Action.REDRIVE: ("redriven",),
    Action.DISCARD: ("discarded",),
    Action.CANCEL: ("cancelled", "requested"),
}
_ABLE = {
    Action.REDRIVE: "dead, failed and cancelled tasks can be redriven",
    Action.DISCARD: "dead, failed and cancelled tasks can be discarded",
    Action.CANCEL: "tasks that have not ended can be cancelled",
}
ANSWERS = (Column("ID", "id"), Column("ANSWER", "answer"))
_PREVIEW = (
    Column("TYPE", "task_type", may_shrink=True),
    Column("TASKS", "tasks"),
    Column("EXAMPLE", "sample_task_id"),
)


def _rate(value: str) -> float:
    """Return tasks a minute, of `10/s`, `600/min` or `1000/h`."""
    match = _RATE.fullmatch(value)
    rate = float(match[1]) * _PER_MINUTE[match[2]] if match else 0.0
    if not 0 < rate <= 1_000_000:
        raise InvalidInputError(
            "bad_operation", f"{ascii(value)[:100]} is not a rate: write 10/s, 600/min or 1000/h"
        )
    return rate


def _patch_document(value: str) -> dict[str, Any]:
    """Return a JSON object: of JSON, `@FILE`, or `-` for standard input."""
    document = option.read_json(value)
    if not isinstance(document, dict):
        raise InvalidInputError(
            "bad_patch", f"--patch must be a JSON object, got {json.dumps(document)[:40]}"
        )
    return document


def action_options(action: Action) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options that an action takes with task ids or a filter, and `-o`, for `act`."""
    options: list[option.Decorator] = [
        click.option(
            "--filter", "expression", metavar="FILTER", help="All tasks that match, such as type:fetch_page."
        ),
        SAVED,
        click.option(
            "--rate",
            "rate_per_minute",
            type=option.Checked(_rate, name="rate"),
            metavar="RATE",
            help="With a filter: 10/s, 600/min.",
        ),
        option.REASON,
        click.option("--detach", "is_detached", is_flag=True, help="With a filter: return immediately."),
        option.sure_options,
        output_option,
    ]
    if action is Action.REDRIVE:
        options[3:3] = [
            click.option(
                "--canary", is_flag=True, help="With a filter: run one task first, the rest if it succeeds."
            ),
            click.option(
                "--patch", metavar="JSON", type=option.Checked(_patch_document, name="patch"),
                help="Merge patch of each payload: JSON, @FILE, -.",
            ),
            click.option(
                "--pool", "agent_type", metavar="NAME", type=option.Token("agent_type"),
                help="With a filter: pool that runs the tasks instead.",
            ),
        ]  # fmt: skip
    return option.together(*options)


def act(
    out: Output,
    action: Action,
    ids: Sequence[str] = (),
    *,
    expression: str | None,
    saved: str | None,
    is_trial: bool,
    is_sure: bool,
    is_detached: bool,
    reason: str | None,
    patch: dict[str, Any] | None = None,
    **fields: Any,
) -> None:
    """Do an action to the tasks with these ids, or as an operation to those that match a filter."""
    if bool(ids) == (expression is not None or saved is not None):
        raise click.UsageError("name some ids, or use --filter or --saved-filter")
    if ids:
        if is_detached or any(fields.values()):
            raise click.UsageError("--rate, --detach, --canary and --pool go with --filter")
        if action is Action.DISCARD and not is_trial:
            option.confirm(f"discard {counted(len(ids), 'task')}", is_sure=is_sure, count=len(ids))
        if is_trial:
            _plan(out, action, ids)
        else:
            _change(out, action, ids, reason, patch)
        return
    query = read_filter(expression)
    fields |= {"reason": reason, "patch": patch}
    if saved is None:
        _request(action, query, fields)  # reports what is invalid before a connection is opened
    _operate(out, action, query, saved, fields, is_trial=is_trial, is_sure=is_sure, is_detached=is_detached)


@with_session("read")
async def _plan(session: CliSession, out: Output, action: Action, ids: Sequence[str]) -> None:
    """Show what would become of each task."""
    tasks = await read.tasks(session.database, ids, session.workspace)
    would = f"would be {_DONE[action][0]}"
    answers = {
        task.id: would if task.status in OBJECTS[action] else task.status.value for task in tasks.values()
    }
    report(out, ids, answers, done=(would,), able=_ABLE[action])


@with_session("write")
async def _change(
    session: CliSession,
    out: Output,
    action: Action,
    ids: Sequence[str],
    reason: str | None,
    patch: dict[str, Any] | None,
) -> None:
    refused = {} if patch is None else await _patch(session, ids, patch, reason)
    change = _changes(session)[action]
    answers = refused | await change([task_id for task_id in ids if task_id not in refused], reason)
    report(out, ids, answers, done=_DONE[action], able=_ABLE[action])


def _changes(
    session: CliSession,
) -> Mapping[Action, Callable[[Sequence[str], str | None], Awaitable[dict[str, str]]]]:
    return {
        Action.CANCEL: lambda ids, reason: session.client.cancel_many(ids, reason=reason),
        Action.REDRIVE: lambda ids, reason: session.client.redrive_many(ids, reason=reason),
        Action.DISCARD: lambda ids, reason: session.triage.discard(ids, actor=session.actor, reason=reason),
    }


async def _patch(
    session: CliSession, ids: Sequence[str], patch: dict[str, Any], reason: str | None
) -> dict[str, str]:
    """Change the payloads of tasks that can be redriven; return why not, by the id of each other task."""
    wanted, refused = edit(patch=patch), dict[str, str]()
    tasks = await read.tasks(session.database, ids, session.workspace)
    for task_id in ids:
        if task_id not in tasks:
            refused[task_id] = MISSING
        elif (status := tasks[task_id].status) not in OBJECTS[Action.REDRIVE]:
            refused[task_id] = status.value
        else:
            try:
                await session.triage.edit(task_id, wanted, actor=session.actor, reason=reason)
            except (InvalidInputError, ConflictError, NotFoundError) as error:
                refused[task_id] = str(error)
    return refused


def report(
    out: Output, ids: Sequence[str], answers: Mapping[str, str], *, done: Sequence[str], able: str
) -> None:
    """Show the answer for each task, and exit with the code of the worst one."""
    rows = [{"id": task_id, "answer": answers.get(task_id, MISSING)} for task_id in ids]
    out.rows(rows, ANSWERS)
    report_missing(rows, "grns task list")
    if others := [row for row in rows if row["answer"] not in done]:
        more = f", and {len(others) - 1} more" if len(others) > 1 else ""
        first = others[0]
        failure.print_error(f"{first['id']} is unchanged ({first['answer']}){more}: only {able}")
        raise click.exceptions.Exit(failure.CONFLICT)


def report_missing(answers: Sequence[Mapping[str, str]], hint: str) -> None:
    """Exit if one of several objects does not exist."""
    if missing := sum(row["answer"] == MISSING for row in answers):
        failure.print_error(f"{missing} of {len(answers)} do not exist", hint)
        raise click.exceptions.Exit(failure.NOT_FOUND)


@with_session("read")
async def _operate(
    session: CliSession,
    out: Output,
    action: Action,
    query: Filter,
    saved: str | None,
    fields: dict[str, Any],
    *,
    is_trial: bool,
    is_sure: bool,
    is_detached: bool,
) -> None:
    """Count the tasks that match, ask, create the operation and watch it; with --dry-run only count."""
    wanted = _request(action, await with_saved(session, query, saved), fields)
    seen = await preview(session.database, wanted, workspace=session.workspace)
    count = f"{'' if seen.is_exact else 'at least '}{counted(seen.count, 'task')}"
    if is_trial:
        _show_preview(out, seen)
        failure.note(f"would {action.value} {count}")
        return
    if seen.count == 0:
        failure.note(f"nothing to {action.value}: no task matches {wanted.filter}")
        return
    option.confirm(f"{action.value} {count}", is_sure=is_sure, count=seen.count)
    made = await create_operation(session.database, wanted, workspace=session.workspace, actor=session.actor)
    if is_detached:
        out.record(asdict(made), lambda: text(str(made.id)))
        return
    failure.note(f"operation {made.id} runs in the background: grns operation watch {made.id} shows it again")
    await watch_operation(session, out, made.id, None)


def _request(action: Action, query: Filter, fields: Mapping[str, Any]) -> OperationRequest:
    try:
        return model.request(action=action, filter=str(query), **fields)
    except InvalidInputError as error:
        raise (
            failure.hinted(error, "grns task filter fields") if error.code == "bad_filter" else error
        ) from error


def _show_preview(out: Output, seen: Preview) -> None:
    rows = [asdict(row) for row in seen.by_type]
    out.rows(rows, _PREVIEW, count=seen.count, is_exact=seen.is_exact)
