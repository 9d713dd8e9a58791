"""grns: a durable task queue. PostgreSQL is the source of truth; NATS JetStream delivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grns.errors import (
    BacklogFullError,
    ConflictError,
    Fail,
    GrnsError,
    InvalidInputError,
    LeaseLostError,
    NotFoundError,
    OutcomeUnknownError,
    OverBudgetError,
    PermissionDeniedError,
    RateLimitedError,
    Retry,
    SettingsError,
    Snooze,
    StaleVersionError,
    TaskCancelledError,
    TaskDeadError,
    TaskEndedError,
    TaskFailedError,
    TaskSignal,
    UnauthenticatedError,
    UnavailableError,
    WaitTimeoutError,
)
from grns.model.retry import Backoff
from grns.model.task import Task, TaskStatus

if TYPE_CHECKING:
    from grns import events, sync, testing
    from grns.agent.client import AgentClient
    from grns.agent.task import AgentTask
    from grns.bootstrap.client import connect
    from grns.client.arguments import Escalate, after
    from grns.client.client import Client
    from grns.client.handle import TaskHandle
    from grns.client.subscription import Event, Subscription
    from grns.client.workflow import Workflow, WorkflowHandle
    from grns.model.blob import Blob
    from grns.model.output_view import OutputEvent
    from grns.model.question import PersonAnswer
    from grns.model.submission import Failures
    from grns.model.unique import Unique
    from grns.worker.context import Context, Transaction
    from grns.worker.follow_up import FollowUp
    from grns.worker.handler import Handler
    from grns.worker.hooks import AttemptEnd
    from grns.worker.pool import Pool
    from grns.worker.signature import Depends

_MODULES = frozenset({"events", "sync", "testing"})
# Loaded when they are asked for: the broker's client alone takes a fifth of a second to import.
_LATER = {
    "AgentClient": "grns.agent.client",
    "AgentTask": "grns.agent.task",
    "Blob": "grns.model.blob",
    "OutputEvent": "grns.model.output_view",
    "PersonAnswer": "grns.model.question",
    "Client": "grns.client.client",
    "AttemptEnd": "grns.worker.hooks",
    "Context": "grns.worker.context",
    "Depends": "grns.worker.signature",
    "Escalate": "grns.client.arguments",
    "Event": "grns.client.subscription",
    "Failures": "grns.model.submission",
    "FollowUp": "grns.worker.follow_up",
    "Handler": "grns.worker.handler",
    "Pool": "grns.worker.pool",
    "Subscription": "grns.client.subscription",
    "TaskHandle": "grns.client.handle",
    "Unique": "grns.model.unique",
    "Transaction": "grns.worker.context",
    "Workflow": "grns.client.workflow",
    "WorkflowHandle": "grns.client.workflow",
    "after": "grns.client.arguments",
    "connect": "grns.bootstrap.client",
}

__all__ = [
    "AgentClient",
    "AgentTask",
    "AttemptEnd",
    "BacklogFullError",
    "Backoff",
    "Blob",
    "Client",
    "ConflictError",
    "Context",
    "Depends",
    "Escalate",
    "Event",
    "Fail",
    "Failures",
    "FollowUp",
    "GrnsError",
    "Handler",
    "InvalidInputError",
    "LeaseLostError",
    "NotFoundError",
    "OutcomeUnknownError",
    "OutputEvent",
    "OverBudgetError",
    "PermissionDeniedError",
    "PersonAnswer",
    "Pool",
    "RateLimitedError",
    "Retry",
    "SettingsError",
    "Snooze",
    "StaleVersionError",
    "Subscription",
    "Task",
    "TaskCancelledError",
    "TaskDeadError",
    "TaskEndedError",
    "TaskFailedError",
    "TaskHandle",
    "TaskSignal",
    "TaskStatus",
    "Transaction",
    "UnauthenticatedError",
    "UnavailableError",
    "Unique",
    "WaitTimeoutError",
    "Workflow",
    "WorkflowHandle",
    "after",
    "connect",
    "events",
    "sync",
    "testing",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"grns.{name}")
    if name not in _LATER:
        raise AttributeError(f"module 'grns' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return __all__
