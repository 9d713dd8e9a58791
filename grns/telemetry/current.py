"""The attempt that the running code belongs to: its log lines name it, whichever logger writes them."""

from __future__ import annotations

from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

from grns.model.outcome import Claim

_CURRENT: ContextVar[Claim | None] = ContextVar("grns_current", default=None)


def begin(claim: Claim | None) -> None:
    """Set the attempt of this asyncio task and of the tasks and threads that it starts."""
    _CURRENT.set(claim)


def attempt() -> Claim | None:
    """Return the attempt of the running code; None outside of a handler."""
    return _CURRENT.get()


def end() -> None:
    """Clear the attempt of this asyncio task."""
    _CURRENT.set(None)


def name(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the attempt to a log line, unless the line names another task."""
    claim = _CURRENT.get()
    if claim is not None and event.get("task_id", claim.id) == claim.id:
        event.setdefault("task_id", claim.id)
        event.setdefault("task_type", claim.task_type)
        event.setdefault("attempt", claim.attempt)
        event.setdefault("trace_id", claim.trace_id)
    return event
