"""Workflows that are cancelled or redriven: a bulk operation on their tasks."""

from __future__ import annotations

from grns.model import subjects
from grns.nats import JetStream
from grns.operations.model import OBJECTS, Action, request
from grns.operations.service import Operation, create_operation
from grns.postgres.database import Database, Session
from grns.tasks import workflows


async def cancel_workflow(
    database: Database | Session,
    transport: JetStream,
    workflow_id: str,
    *,
    workspace: str,
    actor: str,
    reason: str | None = None,
) -> Operation:
    """Cancel all tasks of a workflow that have not ended. Its last tasks run after that.

    Raises:
        NotFoundError: there is no such workflow.
        ConflictError: it has ended.
    """
    return await _operate(database, transport, Action.CANCEL, workflow_id, workspace, actor, reason)


async def redrive_workflow(
    database: Database | Session,
    transport: JetStream,
    workflow_id: str,
    *,
    workspace: str,
    actor: str,
    reason: str | None = None,
) -> Operation:
    """Run the tasks of a workflow again that have failed, died or been cancelled, each after its needs.

    Raises:
        NotFoundError: there is no such workflow.
        ConflictError: it has succeeded, or is being cancelled.
    """
    return await _operate(database, transport, Action.REDRIVE, workflow_id, workspace, actor, reason)


async def _operate(
    database: Database | Session,
    transport: JetStream,
    action: Action,
    workflow_id: str,
    workspace: str,
    actor: str,
    reason: str | None,
) -> Operation:
    verb: workflows.Verb = "cancel" if action is Action.CANCEL else "redrive"
    async with database.transaction() as connection:
        session = Session(connection)
        await workflows.change(session, workflow_id, verb, workspace=workspace, actor=actor, reason=reason)
        statuses = ",".join(sorted(OBJECTS[action]))
        wanted = request(action=action, filter=f"status:{statuses} workflow:{workflow_id}", reason=reason)
        made = await create_operation(session, wanted, workspace=workspace, actor=actor)
    await transport.nudge(subjects.FOLLOW_NUDGE)
    await transport.nudge(subjects.RELAY_NUDGE)
    return made
