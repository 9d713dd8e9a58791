"""End tasks before they have ended themselves."""

from __future__ import annotations

from collections.abc import Sequence

from grns.model import subjects
from grns.nats import JetStream
from grns.postgres.database import Database, Session


async def cancel(
    database: Database | Session,
    transport: JetStream,
    task_ids: Sequence[str],
    *,
    workspace: str,
    actor: str | None,
    reason: str | None,
) -> dict[str, str]:
    """Cancel tasks that wait, and ask the workers of those that run.

    Returns:
        `cancelled`, `requested` (it runs), or the status of a task that had ended, by id. Unknown ids are
        left out.
    """
    rows = await database.run("cancel", task_ids, reason, workspace, actor)
    for agent_id in {row["agent_id"] for row in rows if row["agent_id"] is not None}:
        await transport.nudge(subjects.lease_nudge(agent_id))
    await transport.nudge(subjects.RELAY_NUDGE)
    return {row["id"]: row["answer"] for row in rows}
