"""Which attempt the code that runs here belongs to: what is logged meanwhile says so, whoever logs it."""

from __future__ import annotations

from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

from grns.model.outcome import Claim

_CURRENT: ContextVar[Claim | None] = ContextVar("grns_current", default=None)


def begin(claim: Claim) -> None:
    """Say that all that follows in this asyncio task, and in what it starts, belongs to an attempt."""
    _CURRENT.set(claim)


def end() -> None:
    """Say that it does not any more: what is started from here is another's."""
    _CURRENT.set(None)


def name(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the attempt to a line of the log, where that does not name another itself."""
    claim = _CURRENT.get()
    if claim is not None and event.get("task_id", claim.id) == claim.id:
        event.setdefault("task_id", claim.id)
        event.setdefault("task_type", claim.task_type)
        event.setdefault("attempt", claim.attempt)
        event.setdefault("trace_id", claim.trace_id)
    return event
