"""Run ended tasks again."""

from __future__ import annotations

from collections.abc import Sequence

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
