"""Dispatching: a new command for a task that is queued."""

from __future__ import annotations

from uuid import UUID

from grns.postgres.database import Database
from grns.worker.claims import Claimant


async def dispatch(database: Database, task_id: str, causation_id: UUID | None) -> bool:
    """Log a new command for a task; False where it is not queued."""
    return bool(await database.run("dispatch", [task_id], [causation_id]))


async def explain(database: Database, task_id: str, claimant: Claimant) -> str:
    """Say why a task could not be claimed or dispatched just now."""
    rows = await database.run(
        "explain_unclaimed", [task_id], claimant.workspace, claimant.agent_type, list(claimant.handled)
    )
    return str(rows[0]["reason"])
