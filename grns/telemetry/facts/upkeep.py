"""Facts of the other daemons: what was put back, sent again, deleted, and found wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from grns.telemetry.fact import Fact


@dataclass(frozen=True, slots=True)
class CommandDispatched(Fact):
    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "command_dispatched"
    task_id: str


@dataclass(frozen=True, slots=True)
class TasksReaped(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "task_reaped"
    task_id: str
    agent_id: str
    attempt: int
    trace_id: str
    status: str


@dataclass(frozen=True, slots=True)
class ReaperGraceStarted(Fact):
    """All reapers or Postgres were away: live workers get one lease of time to renew. Told once for each."""

    event: ClassVar[str] = "reaper_grace_started"
    reason: str = "normal after a restart: workers renew their leases before any task is taken back"


@dataclass(frozen=True, slots=True)
class TasksPromoted(Fact):
    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "tasks_promoted"
    tasks: int


@dataclass(frozen=True, slots=True)
class RowsDeleted(Fact):
    event: ClassVar[str] = "rows_deleted"
    table: str
    rows: int


@dataclass(frozen=True, slots=True)
class MessagesExpired(Fact):
    """Open rejected messages were deleted because their workspace kept too many; the log names each."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "rejected_messages_expired"
    messages: int


@dataclass(frozen=True, slots=True)
class Measured(Fact):
    """All that a gauge shows from now on: the values of its labels, and the number, for each series."""

    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "gauges_measured"
    metric: str
    readings: Sequence[tuple[Sequence[str], float]]


@dataclass(frozen=True, slots=True)
class StatsBecameLeader(Fact):
    event: ClassVar[str] = "stats_became_leader"
    epoch: int
    low: int


@dataclass(frozen=True, slots=True)
class StatsStandby(Fact):
    event: ClassVar[str] = "stats_became_standby"
    reason: str


@dataclass(frozen=True, slots=True)
class LogCounted(Fact):
    """So many rows were counted, the latest of them of this age; up to `low` all are."""

    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "log_counted"
    rows: int
    low: int
    missing: int
    age_seconds: float


@dataclass(frozen=True, slots=True)
class InvariantChecked(Fact):
    """How often an invariant is violated, as of the last look at all that it is about."""

    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "invariant_checked"
    invariant: str
    violations: int


@dataclass(frozen=True, slots=True)
class InvariantViolated(Fact):
    """Something that must never be; `grns verify` shows all of it."""

    level: ClassVar[str] = "error"
    event: ClassVar[str] = "invariant_violated"
    invariant: str
    task_id: str | None
    detail: str
