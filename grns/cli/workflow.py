"""`grns workflow …`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any, get_args

import click

from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.operation import watch_operation
from grns.cli.output import Cell, Column, Output, output_option, text
from grns.cli.session import CliSession, paged, with_session
from grns.operations.service import Operation
from grns.operations.workflows import cancel_workflow, redrive_workflow
from grns.postgres.paging import Page
from grns.settings import load
from grns.tasks import workflows as store
from grns.tasks.announce import announce
from grns.tasks.submit import Submissions
from grns.tasks.workflow_plan import (
    PlannedWorkflow,
    WorkflowExtension,
    planned,
    planned_extension,
    read_plan,
)
from grns.tasks.workflows import WorkflowMember, WorkflowState, WorkflowStatus

_LIST = "grns workflow list"
_SHOW = "grns workflow show {workflow_id}"
_ID = click.argument("workflow_id", metavar="ID", type=option.Token("workflow id"))


def _done(workflow: WorkflowState) -> str:
    return f"{workflow.total - workflow.open}/{workflow.total}"


_COLUMNS = (
    Column("ID", "id"),
    Column("NAME", "name", may_shrink=True),
    Column("STATUS", "status", is_status=True),
    Column("ENDED", _done),
    Column("FAILED", "failed"),
    Column("SKIPPED", "skipped", spare=2),
    Column("AGE", "created_at", is_age=True, spare=1),
)
_FIELDS: Sequence[tuple[str, Cell]] = (
    ("id", "id"),
    ("name", "name"),
    ("status", "status"),
    ("tasks", "total"),
    ("open", "open"),
    ("succeeded", "succeeded"),
    ("failed", "failed"),
    ("skipped", "skipped"),
    ("not succeeded", lambda workflow: ", ".join(workflow.failures) or None),
    ("workspace", "workspace"),
    ("trace", "trace_id"),
    ("created by", "created_by"),
    ("sealed at", "sealed_at"),
    ("created at", "created_at"),
    ("ended at", "ended_at"),
    ("paused at", "paused_at"),
    ("paused by", "paused_by"),
    ("because", "pause_reason"),
    ("to be cancelled since", "cancel_requested_at"),
    ("escalated to", "escalation_task_id"),
)
_MEMBERS = (
    Column("NAME", "name", may_shrink=True),
    Column("TASK", "id"),
    Column("STATUS", "status", is_status=True),
    Column("WAITS ON", lambda task: ", ".join(task.waits_on), may_shrink=True),
    Column("ATTEMPT", "attempt", spare=2),
    Column("LAST", lambda task: "yes" if task.is_last else "", spare=3),
    Column("ENDED", "finished_at", is_age=True, spare=1),
)


@click.group(cls=Group)
def workflow() -> None:
    """Submit, show, pause, cancel and redrive workflows: tasks that need each other."""


@workflow.command(
    examples=[
        "grns workflow submit @report.json",
        """grns workflow submit '{"name": "two", "tasks": [{"name": "a", "task_type": "noop"},"""
        """ {"name": "b", "task_type": "noop", "needs": ["a"]}]}'""",
    ]
)
@click.argument("plan", metavar="JSON")
@output_option
def submit(out: Output, plan: str) -> None:
    """Submit a workflow: JSON, @FILE, or - for standard input. docs/workflows.md has its fields."""
    settings = load()
    found = planned(
        read_plan(option.read_json(plan)),
        workspace=settings.workspace,
        trace_id=None,
        limits=settings.payload_limits,
    )
    _submit(out, found)


@workflow.command(
    examples=[
        "grns workflow add WORKFLOW_ID @more.json",
        """grns workflow add WORKFLOW_ID '{"tasks": [{"task_type": "noop"}]}'""",
    ]
)
@_ID
@click.argument("tasks", metavar="JSON")
@output_option
def add(out: Output, workflow_id: str, tasks: str) -> None:
    """Add tasks to an open workflow: JSON, @FILE, or - for standard input."""
    settings = load()
    found = planned_extension(
        read_plan(option.read_json(tasks), WorkflowExtension),
        workflow_id,
        workspace=settings.workspace,
        trace_id=None,
        limits=settings.payload_limits,
    )
    _submit(out, found)


@workflow.command(examples=["grns workflow seal WORKFLOW_ID", "grns workflow seal WORKFLOW_ID -o json"])
@_ID
@output_option
@with_session("write", missing=_LIST)
async def seal(session: CliSession, out: Output, workflow_id: str) -> None:
    """Seal an open workflow: it ends once its tasks have ended."""
    sealed = await store.seal(
        session.database, session.transport, workflow_id, workspace=session.workspace, actor=session.actor
    )
    out.details(sealed, _FIELDS)


@with_session("write")
async def _submit(session: CliSession, out: Output, plan: PlannedWorkflow) -> None:
    submissions = Submissions(session.database, batch_limit=len(plan.tasks), actor=session.actor)
    await submissions.submit_workflow(plan.tasks, plan.workflow)
    await announce(session.transport, plan.tasks)
    ids = {name: task_id for task_id, name in plan.workflow.names.items()}
    out.record({"id": plan.workflow.id, "tasks": ids}, lambda: text(plan.workflow.id))
    failure.note(f"{len(ids)} tasks; watch them with: grns workflow show {plan.workflow.id}")


@workflow.command("list", examples=["grns workflow list", "grns workflow list --status running"])
@click.option("--status", type=click.Choice(get_args(WorkflowStatus)), help="Only those of this status.")
@paged(_COLUMNS, nothing="no workflows")
async def list_workflows(
    session: CliSession, status: WorkflowStatus | None, **page: Any
) -> Page[WorkflowState]:
    """List workflows, the latest first."""
    return await store.list_workflows(session.database, workspace=session.workspace, status=status, **page)


@workflow.command(examples=["grns workflow show WORKFLOW_ID", "grns workflow show WORKFLOW_ID -o json"])
@_ID
@output_option
@with_session("read", missing=_LIST)
async def show(session: CliSession, out: Output, workflow_id: str) -> None:
    """Show a workflow: how many of its tasks have ended, and how."""
    out.details(await store.read(session.database, workflow_id, workspace=session.workspace), _FIELDS)


@workflow.command(examples=["grns workflow tasks WORKFLOW_ID", "grns workflow tasks WORKFLOW_ID --limit 500"])
@_ID
@paged(_MEMBERS, nothing="no tasks", missing=_LIST)
async def tasks(session: CliSession, workflow_id: str, **page: Any) -> Page[WorkflowMember]:
    """List the tasks of a workflow, and what each still waits on."""
    await store.read(session.database, workflow_id, workspace=session.workspace)
    return await store.members(session.database, workflow_id, workspace=session.workspace, **page)


@workflow.command(
    examples=[
        "grns workflow pause WORKFLOW_ID",
        'grns workflow pause WORKFLOW_ID --reason "the shop is closed"',
    ]
)
@_ID
@option.REASON
@output_option
@with_session("write", missing=_LIST, conflict=_SHOW)
async def pause(session: CliSession, out: Output, workflow_id: str, reason: str | None) -> None:
    """Pause a workflow: queue no task of it that waits for others."""
    out.details(await _change(session, store.pause, workflow_id, reason), _FIELDS)


@workflow.command(examples=["grns workflow resume WORKFLOW_ID", "grns workflow resume WORKFLOW_ID -o json"])
@_ID
@option.REASON
@output_option
@with_session("write", missing=_LIST, conflict=_SHOW)
async def resume(session: CliSession, out: Output, workflow_id: str, reason: str | None) -> None:
    """Resume a workflow."""
    out.details(await _change(session, store.resume, workflow_id, reason), _FIELDS)


async def _change(
    session: CliSession, change: Callable[..., Awaitable[Any]], workflow_id: str, reason: str | None
) -> Any:
    return await change(
        session.database, session.transport, workflow_id, workspace=session.workspace, actor=session.actor,
        reason=reason,
    )  # fmt: skip


def _add(verb: str, change: Callable[..., Awaitable[Operation]], help_text: str, reason: str) -> None:
    """Add a command that does something to all tasks of a workflow, as a bulk operation."""

    @workflow.command(
        verb,
        help=help_text,
        examples=[
            f"grns workflow {verb} WORKFLOW_ID",
            f'grns workflow {verb} WORKFLOW_ID --yes --reason "{reason}"',
        ],
    )
    @_ID
    @option.REASON
    @option.sure_options
    @click.option(
        "--detach", "is_detached", is_flag=True, help="Print the operation's number and return at once."
    )
    @output_option
    @with_session("write", missing=_LIST, conflict=_SHOW)
    async def command(
        session: CliSession,
        out: Output,
        workflow_id: str,
        reason: str | None,
        is_trial: bool,
        is_sure: bool,
        is_detached: bool,
    ) -> None:
        found = await store.read(session.database, workflow_id, workspace=session.workspace)
        sentence = f"{verb} workflow {found.name} ({_done(found)} tasks ended, {found.failed} failed)"
        option.confirm(sentence, is_sure=is_sure, is_trial=is_trial)
        made = await _change(session, change, workflow_id, reason)
        if is_detached:
            out.record(asdict(made), lambda: text(str(made.id)))
        else:
            await watch_operation(session, out, made.id, None)


_add("cancel", cancel_workflow, "Cancel all tasks of a workflow that have not ended.", "wrong month")
_add("redrive", redrive_workflow, "Run all tasks of a workflow again that have not succeeded.", "fixed")
