"""Run ended tasks again."""

from __future__ import annotations

from collections.abc import Sequence

from grns.errors import ConflictError, NotFoundError
from grns.nats import JetStream
from grns.postgres.database import Database, Session
from grns.tasks.announce import QueuedTask, announce_queued


async def redrive(
    database: Database | Session,
    transport: JetStream,
    task_ids: Sequence[str],
    *,
    workspace: str,
    actor: str | None,
    reason: str | None,
) -> dict[str, str]:
    """Queue dead, failed and cancelled tasks, with their attempts reset, and tell the workers.

    Returns:
        `redriven` or the status of a task that cannot be redriven, by id. Unknown ids are left out.
    """
    rows = await database.run("redrive", task_ids, workspace, actor, reason)
    queued = [
        QueuedTask(workspace, row["agent_type"], row["id"]) for row in rows if row["answer"] == "redriven"
    ]
    await announce_queued(transport, queued)
    return {row["id"]: row["answer"] for row in rows}


async def reset(
    database: Database | Session,
    transport: JetStream,
    task_id: str,
    *,
    step: str,
    workspace: str,
    actor: str | None,
    reason: str | None,
) -> str:
    """Forget a step of an ended task, and all after it, and redrive the task.

    Returns:
        `redriven`.

    Raises:
        NotFoundError: there is no such task, or it has no such step.
        ConflictError: it has not ended, or has succeeded.
    """
    (row,) = await database.run("forget_steps", task_id, workspace, step)
    if row["status"] is None:
        raise NotFoundError(f"there is no task {task_id} in workspace {workspace}")
    if not row["forgotten"] and row["has_step"]:
        raise ConflictError(f"task {task_id} is {row['status']}: only one that failed can be reset")
    if not row["forgotten"]:
        raise NotFoundError(f"task {task_id} has no step {ascii(step)[1:-1][:100]}")
    answers = await redrive(
        database, transport, [task_id], workspace=workspace, actor=actor, reason=reason or f"reset to {step}"
    )
    return answers.get(task_id, "deleted")
