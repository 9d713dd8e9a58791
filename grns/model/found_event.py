"""An event that a handler has waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class FoundEvent:
    """An event of the log.

    Attributes:
        seq: number of the event in the log.
        kind: kind of the event, such as `evt.task.completed`.
        task_id: the task that it is about; None if it is about none.
        payload: what it says: see the schema of its kind.
        created_at: when it happened.
    """

    seq: int
    kind: str
    task_id: str | None
    payload: dict[str, Any]
    created_at: datetime

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> FoundEvent:
        """Return the event that a step has recorded."""
        return cls(
            said["seq"],
            said["kind"],
            said["task_id"],
            said["payload"],
            datetime.fromisoformat(said["created_at"]),
        )
