"""What the log tells of one task, attempt by attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_ENDS = {
    "evt.task.completed": "succeeded",
    "evt.task.retry_scheduled": "retry_wait",
    "evt.task.failed": "failed",
    "evt.task.dead": "dead",
    "evt.task.cancelled": "cancelled",
    "evt.task.lease_expired": "lease expired",
    "evt.task.released": "released",
}


class Timeline:
    """The attempts that the log tells of: who claimed when, and how and when it ended."""

    def __init__(self) -> None:
        self._attempts: dict[int, dict[str, Any]] = {}

    def read(self, history: Iterable[Mapping[str, Any]]) -> None:
        """Take what the log says next; nothing of it is kept but what attempts are told by."""
        for row in history:
            number, payload = row["attempt"], row["payload"]
            if row["kind"] == "evt.task.claimed":
                self._attempts[number] = {
                    "attempt": number,
                    "agent_id": payload.get("agent_id"),
                    "claimed_at": row["created_at"],
                    "ended_at": None,
                    "outcome": None,
                    "reason": None,
                }
            elif row["kind"] in _ENDS and self._attempts.get(number, {"outcome": ""})["outcome"] is None:
                self._attempts[number] |= {
                    "ended_at": row["created_at"],
                    "outcome": _ENDS[row["kind"]],
                    "reason": payload.get("error_class") or payload.get("reason"),
                }

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """All so far, in their order."""
        return [self._attempts[number] for number in sorted(self._attempts)]


def timeline(history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the attempts that a whole history tells of."""
    told = Timeline()
    told.read(history)
    return told.attempts
