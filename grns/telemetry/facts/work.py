"""Facts of a worker and of its keeper: what became of tasks, attempts and leases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grns.telemetry.fact import Fact


@dataclass(frozen=True, slots=True)
class WorkerServes(Fact):
    event: ClassVar[str] = "worker_started"
    agent_type: str
    task_types: str
    slots: int
    database: str
    nats: str


@dataclass(frozen=True, slots=True)
class WorkerStopping(Fact):
    event: ClassVar[str] = "worker_stopping"
    running: int
    grace_seconds: float
    detail: str


@dataclass(frozen=True, slots=True)
class WorkerPaused(Fact):
    """Nothing more of it is claimed, here or elsewhere: of one task type, or of none at all."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "pool_paused"
    agent_type: str
    task_type: str | None
    paused_by: str
    reason: str | None
    until: str | None


@dataclass(frozen=True, slots=True)
class WorkerResumed(Fact):
    event: ClassVar[str] = "pool_resumed"
    agent_type: str
    task_type: str | None


@dataclass(frozen=True, slots=True)
class NoHandler(Fact):
    """Told once of each task type: other workers of the agent type may have a handler, or nobody."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "no_handler"
    task_type: str
    task_id: str
    handlers: str


@dataclass(slots=True)  # told of each task: frozen ones take five times as long to make
class AttemptStarted(Fact):
    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "task_claimed"
    task_id: str
    task_type: str
    attempt: int
    trace_id: str
    source: str  # lane, shared, floor
    queued_seconds: float


@dataclass(frozen=True, slots=True)
class TaskNotClaimed(Fact):
    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "task_not_claimed"
    task_id: str
    reason: str


@dataclass(slots=True)  # told of each task: frozen ones take five times as long to make
class AttemptFinished(Fact):
    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "attempt_finished"
    task_id: str
    task_type: str
    attempt: int
    trace_id: str
    status: str
    run_seconds: float
    total_seconds: float | None
    error_class: str | None


@dataclass(frozen=True, slots=True)
class AttemptFailed(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "attempt_failed"
    task_id: str
    task_type: str
    attempt: int
    trace_id: str
    error_class: str
    message: str
    exception: str  # the traceback; none where the handler asked for this end


@dataclass(frozen=True, slots=True)
class RetryRequested(Fact):
    """A handler raised `Retry`, and attempts are left. On the last one it is `attempt_failed`."""

    event: ClassVar[str] = "retry_requested"
    task_id: str
    task_type: str
    attempt: int
    trace_id: str
    error_class: str
    message: str
    exception: str  # the traceback, if it was raised because of another error


@dataclass(frozen=True, slots=True)
class LeaseLost(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "lease_lost"
    task_id: str
    attempt: int
    trace_id: str
    reason: str  # refused, deadline, finish


@dataclass(frozen=True, slots=True)
class AttemptReleased(Fact):
    event: ClassVar[str] = "task_released"
    task_id: str
    attempt: int
    trace_id: str
    verdict: str


@dataclass(frozen=True, slots=True)
class RenewFailed(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "renew_failed"
    leases: int
    error: str


@dataclass(frozen=True, slots=True)
class RenewalsUnanswered(Fact):
    """What a worker learns of its keeper, which logs each of them itself."""

    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "renewals_unanswered"
    times: int


@dataclass(frozen=True, slots=True)
class LeasesRenewed(Fact):
    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "leases_renewed"
    leases: int
    lost: int
    cancelled: int


@dataclass(frozen=True, slots=True)
class HandlerOverran(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "handler_overran"
    task_id: str
    attempt: int
    trace_id: str
    detail: str


@dataclass(frozen=True, slots=True)
class HeartbeatRestarted(Fact):
    level: ClassVar[str] = "error"
    event: ClassVar[str] = "heartbeat_restarted"
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class HeartbeatStuck(Fact):
    level: ClassVar[str] = "error"
    event: ClassVar[str] = "heartbeat_stalled"
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskCrashed(Fact):
    level: ClassVar[str] = "error"
    event: ClassVar[str] = "task_crashed"
    error_class: str
    error: str


@dataclass(frozen=True, slots=True)
class DeliveryDeferred(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "delivery_deferred"
    task_id: str
    reason: str
    detail: str
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class PollClaimed(Fact):
    event: ClassVar[str] = "tasks_polled"
    tasks: int
