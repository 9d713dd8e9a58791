"""Editing and setting aside: what changes a task and is no transition."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from grns.errors import ConflictError, NotFoundError, StaleVersionError
from grns.model.json import dumps
from grns.model.task import Task
from grns.postgres.database import Connection, Database, Session, run

_REFUSALS = {
    "running": "it runs",
    "succeeded": "it has succeeded",
    "not waiting": "it waits for no time",
}


async def edit_task(
    connection: Connection,
    seen: Task,
    *,
    priority: int | None,
    delay_seconds: float | None,
    run_at: datetime | None,
    payload: str | None,
    route: str | None,
    actor: str,
    reason: str | None = None,
) -> None:
    """Change a task that does not run, if it still is as it was seen; what is None stays.

    Raises `StaleVersionError` where it is not, `ConflictError` where it cannot be changed, and
    `NotFoundError`.
    """
    rows = await run(
        connection, "edit_task", seen.id, seen.workspace, seen.version, seen.updated_at, priority,
        delay_seconds, payload, actor, reason, run_at, route,
    )  # fmt: skip
    if not rows:
        raise NotFoundError(f"there is no task {seen.id} in workspace {seen.workspace}")
    answer: str = rows[0]["answer"]
    if answer == "changed meanwhile":
        raise StaleVersionError(f"task {seen.id} cannot be changed: it was changed since it was read")
    if answer != "changed":
        raise ConflictError(f"task {seen.id} cannot be changed: {_REFUSALS[answer]}")


async def label_task(
    connection: Connection,
    task_id: str,
    changes: dict[str, Any],
    *,
    workspace: str,
    actor: str,
    reason: str | None = None,
) -> None:
    """Change labels of a task, whatever its status; an empty value removes one. Raises `NotFoundError`."""
    rows = await run(connection, "label_task", task_id, dumps(changes), workspace, actor, reason)
    if not rows[0]["is_there"]:
        raise NotFoundError(f"there is no task {task_id} in workspace {workspace}")


async def discard_tasks(
    database: Database | Session,
    task_ids: Sequence[str],
    *,
    workspace: str,
    actor: str,
    reason: str | None = None,
) -> dict[str, str]:
    """Set ended tasks aside; returns `discarded`, `discarded before` or the status, by the id of each."""
    rows = await database.run("discard_tasks", list(task_ids), workspace, actor, reason)
    return {row["id"]: row["answer"] for row in rows}
