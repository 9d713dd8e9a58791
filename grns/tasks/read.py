"""Reading tasks, their history and dead letters, for clients and people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grns.model.json import loads_stored
from grns.model.task import Task, TaskStatus
from grns.postgres.database import Database, Row, Session


async def tasks(database: Database | Session, ids: Sequence[str], workspace: str) -> dict[str, Task]:
    """Return the tasks that exist, by id."""
    return {row["id"]: task(row) for row in await database.run("read_tasks", list(ids), workspace)}


async def statuses(database: Database | Session, ids: Sequence[str], workspace: str) -> dict[str, TaskStatus]:
    """Return where the tasks that exist are, by id."""
    return {
        row["id"]: TaskStatus(row["status"])
        for row in await database.run("read_statuses", list(ids), workspace)
    }


def task(row: Row | Mapping[str, Any]) -> Task:
    """Return one row as a task."""
    values: dict[str, Any] = dict(row)
    for name in ("payload", "result", "last_error", "checkpoint_data", "metadata", "backoff"):
        values[name] = loads_stored(values[name])
    values["status"] = TaskStatus(values["status"])
    return Task(**values)
