"""Reading tasks, their history and dead letters, for clients and people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grns.model.json import loads_stored
from grns.model.secret import mask_text
from grns.model.task import Task, TaskStatus
from grns.postgres.database import Database, Row, Session


async def tasks(
    database: Database | Session, ids: Sequence[str], workspace: str, *, shows_secrets_as_stored: bool = False
) -> dict[str, Task]:
    """Return the tasks that exist, by id; their secrets are `•••`, or sealed, as they are stored."""
    rows = await database.run("read_tasks", list(ids), workspace)
    return {row["id"]: task(row, shows_secrets_as_stored=shows_secrets_as_stored) for row in rows}


async def statuses(database: Database | Session, ids: Sequence[str], workspace: str) -> dict[str, TaskStatus]:
    """Return where the tasks that exist are, by id."""
    return {
        row["id"]: TaskStatus(row["status"])
        for row in await database.run("read_statuses", list(ids), workspace)
    }


def task(row: Row | Mapping[str, Any], *, shows_secrets_as_stored: bool = False) -> Task:
    """Return one row as a task."""
    values: dict[str, Any] = dict(row)
    if not shows_secrets_as_stored:
        values["payload"] = mask_text(values["payload"])
    for name in ("payload", "result", "last_error", "checkpoint_data", "metadata", "backoff"):
        values[name] = loads_stored(values[name])
    values["status"] = TaskStatus(values["status"])
    return Task(**values)
