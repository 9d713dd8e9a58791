"""The attempts of one task, from its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

_ENDS = {
    "evt.task.completed": "succeeded",
    "evt.task.retry_scheduled": "retry_wait",
    "evt.task.snoozed": "snoozed",
    "evt.task.waiting": "suspended",  # of an attempt that has not ended yet
    "evt.task.failed": "failed",
    "evt.task.dead": "dead",
    "evt.task.cancelled": "cancelled",
    "evt.task.lease_expired": "lease expired",
    "evt.task.released": "released",
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt: who claimed it and when, how and when it ended."""

    attempt: int
    agent_id: str | None
    claimed_at: datetime
    ended_at: datetime | None = None
    outcome: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptEvent:
    """What an event says of an attempt."""

    seq: int
    kind: str
    attempt: int
    created_at: datetime
    payload: dict[str, Any]


def attempts(transitions: Iterable[AttemptEvent]) -> list[Attempt]:
    """Return the attempts that transitions tell of, which are in order."""
    found: dict[int, Attempt] = {}
    for one in transitions:
        attempt = found.get(one.attempt)
        if one.kind == "evt.task.claimed":
            found[one.attempt] = Attempt(one.attempt, one.payload.get("agent_id"), one.created_at)
        elif one.kind in _ENDS and attempt is not None and attempt.outcome is None:
            reason = one.payload.get("error_class") or one.payload.get("reason") or one.payload.get("step")
            found[one.attempt] = replace(
                attempt, ended_at=one.created_at, outcome=_ENDS[one.kind], reason=reason
            )
    return [found[number] for number in sorted(found)]
