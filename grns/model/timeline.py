"""The attempts of one task, from its events."""

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
    """Collects attempts from events: worker, claim, end and outcome."""

    def __init__(self) -> None:
        self._attempts: dict[int, dict[str, Any]] = {}

    def read(self, history: Iterable[Mapping[str, Any]]) -> None:
        """Process the next events, in their order."""
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
        """The attempts so far, in their order."""
        return [self._attempts[number] for number in sorted(self._attempts)]


def timeline(history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the attempts of a whole history."""
    collected = Timeline()
    collected.read(history)
    return collected.attempts
