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


def timeline(history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the attempts that the log tells of: who claimed when, and how and when it ended."""
    attempts: dict[int, dict[str, Any]] = {}
    for row in history:
        number, payload = row["attempt"], row["payload"]
        if row["kind"] == "evt.task.claimed":
            attempts[number] = {
                "attempt": number,
                "agent_id": payload.get("agent_id"),
                "claimed_at": row["created_at"],
                "ended_at": None,
                "outcome": None,
                "reason": None,
            }
        elif row["kind"] in _ENDS and attempts.get(number, {"outcome": ""})["outcome"] is None:
            attempts[number] |= {
                "ended_at": row["created_at"],
                "outcome": _ENDS[row["kind"]],
                "reason": payload.get("error_class") or payload.get("reason"),
            }
    return [attempts[number] for number in sorted(attempts)]
