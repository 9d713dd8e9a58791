"""Pause single tasks, and resume them."""

from __future__ import annotations

from collections.abc import Sequence

from grns.model import subjects
from grns.nats import JetStream
from grns.postgres.database import Database, Session
from grns.tasks.announce import QueuedTask, announce_queued


async def pause_tasks(
    database: Database | Session,
    transport: JetStream,
    task_ids: Sequence[str],
    *,
    workspace: str,
    actor: str | None,
    reason: str | None,
) -> dict[str, str]:
    """Pause tasks that do not run: they wait until they are resumed.

    Returns:
        `paused`, or the status of a task that runs or has ended, by id. Unknown ids are left out.
    """
    rows = await database.run("pause_tasks", task_ids, workspace, actor, reason)
    await transport.nudge(subjects.RELAY_NUDGE)
    return {row["id"]: row["answer"] for row in rows}


async def resume_tasks(
    database: Database | Session,
    transport: JetStream,
    task_ids: Sequence[str],
    *,
    workspace: str,
    actor: str | None,
    reason: str | None,
) -> dict[str, str]:
    """Resume paused tasks: each waits for the tasks that it needs, or for its time, or is queued.

    Returns:
        `resumed`, or the status of a task that is not paused, by id. Unknown ids are left out.
    """
    rows = await database.run("resume_tasks", task_ids, workspace, actor, reason)
    queued = [QueuedTask(workspace, row["agent_type"], row["id"]) for row in rows if row["agent_type"]]
    await transport.nudge(subjects.FOLLOW_NUDGE)
    await announce_queued(transport, queued)
    return {row["id"]: row["answer"] for row in rows}
