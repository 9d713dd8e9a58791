"""Workflows: tasks that were submitted together, and how far they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from grns.errors import ConflictError, NotFoundError
from grns.model import subjects
from grns.model.task import TaskStatus
from grns.nats import JetStream
from grns.postgres.database import Database, Session
from grns.postgres.paging import Page, cursor, page_of, parts

WorkflowStatus = Literal["running", "succeeded", "failed", "cancelled"]
Verb = Literal["pause", "resume", "cancel", "redrive"]


@dataclass(frozen=True, slots=True)
class WorkflowState:
    """A workflow as Postgres has it.

    Of its `total` tasks, `open` have not ended, `succeeded` have, `failed` have failed, died or been
    cancelled, and `skipped` were not to be run, as on a branch for a failure that did not happen. Its last
    tasks are not counted. Until it has a `sealed_at`, more tasks may be added to it. While it is paused, or
    is to be cancelled, no task that waits for others is queued. `escalation_task_id` is the task that was
    submitted because too many have failed. `failures` are the names of those that have failed, died or been
    cancelled, at most 20; a list of workflows leaves it out.
    """

    id: str
    workspace: str
    name: str
    status: WorkflowStatus
    total: int
    open: int
    succeeded: int
    failed: int
    skipped: int
    trace_id: str
    created_at: datetime
    created_by: str | None
    sealed_at: datetime | None
    ended_at: datetime | None
    version: int
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    cancel_requested_at: datetime | None = None
    escalation_task_id: str | None = None
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WorkflowMember:
    """A task of a workflow.

    `waits_on` are the names of the tasks that it still waits for, at most 20; `needs` the ids of the tasks,
    or of the workflow, that it needs, at most 500.
    """

    name: str
    id: str
    task_type: str
    agent_type: str
    status: TaskStatus
    waits_for: str | None
    waits_on: list[str]
    needs: list[str]
    attempt: int
    is_last: bool
    started_at: datetime | None
    finished_at: datetime | None


async def read(database: Database | Session, workflow_id: str, *, workspace: str) -> WorkflowState:
    """Return a workflow. Raises NotFoundError if there is none."""
    found = await database.fetch(WorkflowState, "read_workflow", workflow_id, workspace)
    if not found:
        raise _no_workflow(workflow_id, workspace)
    return found[0]


async def list_workflows(
    database: Database | Session,
    *,
    workspace: str,
    status: WorkflowStatus | None = None,
    limit: int,
    after: str | None = None,
) -> Page[WorkflowState]:
    """Return workflows of a status, or all, the latest first."""
    before = None if after is None else parts(after)[0]
    found = await database.fetch(WorkflowState, "list_workflows", workspace, status, before, limit + 1)
    return page_of(found, limit, lambda one: cursor(one.id))


async def members(
    database: Database | Session, workflow_id: str, *, workspace: str, limit: int, after: str | None = None
) -> Page[WorkflowMember]:
    """Return the tasks of a workflow in the order of their ids, which is that of their submission."""
    behind = "" if after is None else parts(after)[0]
    found = await database.fetch(WorkflowMember, "list_members", workflow_id, workspace, behind, limit + 1)
    return page_of(found, limit, lambda one: cursor(one.id))


async def pause(
    database: Database | Session,
    transport: JetStream,
    workflow_id: str,
    *,
    workspace: str,
    actor: str,
    reason: str | None = None,
) -> WorkflowState:
    """Pause a workflow: no task of it that waits for others is queued until it is resumed.

    Tasks that are queued already, and retries, are run.

    Raises:
        NotFoundError: there is no such workflow.
        ConflictError: it has ended.
    """
    await change(database, workflow_id, "pause", workspace=workspace, actor=actor, reason=reason)
    await transport.nudge(subjects.RELAY_NUDGE)
    return await read(database, workflow_id, workspace=workspace)


async def resume(
    database: Database | Session,
    transport: JetStream,
    workflow_id: str,
    *,
    workspace: str,
    actor: str,
    reason: str | None = None,
) -> WorkflowState:
    """Resume a workflow; one that is not paused stays as it is. Errors are those of `pause`."""
    await change(database, workflow_id, "resume", workspace=workspace, actor=actor, reason=reason)
    await transport.nudge(subjects.FOLLOW_NUDGE)
    await transport.nudge(subjects.RELAY_NUDGE)
    return await read(database, workflow_id, workspace=workspace)


async def seal(
    database: Database | Session,
    transport: JetStream,
    workflow_id: str,
    *,
    workspace: str,
    actor: str,
) -> WorkflowState:
    """Seal an open workflow: it ends once its tasks have. One that is sealed stays as it is.

    Raises:
        NotFoundError: there is no such workflow.
    """
    await database.run("seal_workflow", workflow_id, workspace, actor)
    await transport.nudge(subjects.FOLLOW_NUDGE)
    await transport.nudge(subjects.RELAY_NUDGE)
    return await read(database, workflow_id, workspace=workspace)


async def change(
    database: Database | Session,
    workflow_id: str,
    verb: Verb,
    *,
    workspace: str,
    actor: str,
    reason: str | None,
) -> None:
    """Pause or resume a workflow, or note that its tasks are to be cancelled or redriven."""
    rows = await database.run("change_workflow", workflow_id, workspace, verb, actor, reason)
    if not rows:
        raise _no_workflow(workflow_id, workspace)
    status = rows[0]["status"]
    if rows[0]["is_changed"] or (verb, status) == ("resume", "running"):
        return
    if rows[0]["is_ending"]:
        raise ConflictError(
            f"workflow {workflow_id} is being cancelled: it can be redriven when it has ended"
        )
    raise ConflictError(f"workflow {workflow_id} has ended as {status}: it cannot {verb}")


def _no_workflow(workflow_id: str, workspace: str) -> NotFoundError:
    return NotFoundError(f"there is no workflow {ascii(workflow_id)[1:-1][:100]} in workspace {workspace}")
