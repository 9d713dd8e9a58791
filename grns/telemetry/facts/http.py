"""Facts of the HTTP door."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grns.telemetry.fact import Fact


@dataclass(frozen=True, slots=True)
class ApiServes(Fact):
    event: ClassVar[str] = "api_started"
    url: str
    is_isolated: bool


@dataclass(frozen=True, slots=True)
class WorkspacesNotIsolated(Fact):
    """Keys of single workspaces exist, and only grns, not Postgres, keeps them apart."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "workspaces_not_isolated"
    obstacle: str
    advice: str


@dataclass(frozen=True, slots=True)
class RequestAnswered(Fact):
    """`status` 0: nobody was there any more to be answered."""

    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "request_answered"
    operation: str
    method: str
    status: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RequestFailed(Fact):
    """Postgres or the broker did not answer: whoever asked was told as much, and no more."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "request_failed"
    repeats: ClassVar[bool] = True
    varies: ClassVar[tuple[str, ...]] = ("operation",)
    operation: str
    error: str


@dataclass(frozen=True, slots=True)
class RequestBroke(Fact):
    """A bug ended it. Whoever asked has the trace id."""

    level: ClassVar[str] = "error"
    event: ClassVar[str] = "request_crashed"
    operation: str
    trace_id: str
    exception: str
