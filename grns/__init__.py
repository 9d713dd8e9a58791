"""grns: runs agents' tasks on NATS JetStream with PostgreSQL as the only truth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grns.errors import (
    BadInput,
    Conflict,
    Fail,
    GrnsError,
    LeaseLost,
    NotFound,
    OutcomeUnknown,
    Retry,
    SettingsError,
    Unavailable,
    WaitTimeout,
)
from grns.retry import Backoff
from grns.task import Status, Task

if TYPE_CHECKING:
    from grns.agent_client import AgentClient
    from grns.agent_task import AgentTask
    from grns.assembly.connect import connect
    from grns.client import Client
    from grns.context import Context, Transaction
    from grns.pool import Pool
    from grns.store.submit import Submitted
    from grns.subscription import Event, Subscription

# Loaded when they are asked for: the broker's client alone takes a fifth of a second to import.
_LATER = {
    "AgentClient": "grns.agent_client",
    "AgentTask": "grns.agent_task",
    "Client": "grns.client",
    "Context": "grns.context",
    "Event": "grns.subscription",
    "Pool": "grns.pool",
    "Submitted": "grns.store.submit",
    "Subscription": "grns.subscription",
    "Transaction": "grns.context",
    "connect": "grns.assembly.connect",
}

__all__ = [
    "AgentClient",
    "AgentTask",
    "Backoff",
    "BadInput",
    "Client",
    "Conflict",
    "Context",
    "Event",
    "Fail",
    "GrnsError",
    "LeaseLost",
    "NotFound",
    "OutcomeUnknown",
    "Pool",
    "Retry",
    "SettingsError",
    "Status",
    "Submitted",
    "Subscription",
    "Task",
    "Transaction",
    "Unavailable",
    "WaitTimeout",
    "connect",
]


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'grns' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(module), name)
