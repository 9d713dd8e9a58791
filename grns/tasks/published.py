"""Task types that pools publish, with the schemas of their payloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from grns.model.json import loads_stored
from grns.postgres.database import Database, Session


@dataclass(frozen=True, slots=True)
class TaskType:
    """A task type that a pool publishes. `payload_schema` is the JSON Schema of its payload."""

    task_type: str
    agent_type: str
    description: str | None
    payload_schema: Mapping[str, Any]
    published_at: datetime


async def list_task_types(database: Database | Session, *, workspace: str) -> Sequence[TaskType]:
    """Return the published task types by name, 1,000 at most. Of one name, that of the first pool."""
    rows = await database.run("list_task_types", workspace)
    return [
        TaskType(
            row["task_type"], row["agent_type"], row["description"], loads_stored(row["payload_schema"]),
            row["published_at"],
        )
        for row in rows
    ]  # fmt: skip
