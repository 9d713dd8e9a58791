"""The facts. Each is emitted where it happens, once; what is made of it is decided in the leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


class Fact:
    """Something that happened: a dataclass. `level` is that of the log line; `event` its name.

    Of one that `repeats` while a trouble lasts, the log shows fewer and fewer.
    """

    level: ClassVar[str] = "info"
    event: ClassVar[str] = "fact"
    repeats: ClassVar[bool] = False
    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True)
class ServiceStarted(Fact):
    event: ClassVar[str] = "service_started"
    service: str


@dataclass(frozen=True, slots=True)
class SettingMisspelt(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "setting_misspelt"
    detail: str


@dataclass(frozen=True, slots=True)
class ServiceStopped(Fact):
    event: ClassVar[str] = "service_stopped"
    service: str


@dataclass(frozen=True, slots=True)
class WorkerServes(Fact):
    event: ClassVar[str] = "worker_serves"
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
class NoHandler(Fact):
    """Told once of each task type: other workers of the agent type may have a handler, or nobody."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "no_handler"
    task_type: str
    task_id: str
    handlers: str


@dataclass(slots=True)  # told of each task: frozen ones take five times as long to make
class TaskClaimed(Fact):
    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "task_claimed"
    task_id: str
    task_type: str
    attempt: int
    trace_id: str
    source: str  # lane, front_door, floor
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
class LeaseLost(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "lease_lost"
    task_id: str
    attempt: int
    reason: str  # refused, deadline, finish


@dataclass(frozen=True, slots=True)
class TaskReleased(Fact):
    event: ClassVar[str] = "task_released"
    task_id: str
    attempt: int
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
    detail: str


@dataclass(frozen=True, slots=True)
class KeeperRestarted(Fact):
    level: ClassVar[str] = "error"
    event: ClassVar[str] = "keeper_restarted"
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class KeeperStuck(Fact):
    level: ClassVar[str] = "error"
    event: ClassVar[str] = "keeper_stuck"
    seconds: float


@dataclass(frozen=True, slots=True)
class WalkBroke(Fact):
    level: ClassVar[str] = "error"
    event: ClassVar[str] = "walk_broke"
    error_class: str
    error: str


@dataclass(frozen=True, slots=True)
class CommandDispatched(Fact):
    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "command_dispatched"
    task_id: str


@dataclass(frozen=True, slots=True)
class MessageRejected(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "message_rejected"
    reason: str
    subject: str
    stream_seq: int
    detail: str


@dataclass(frozen=True, slots=True)
class EventNotHandled(Fact):
    level: ClassVar[str] = "error"
    event: ClassVar[str] = "event_not_handled"
    repeats: ClassVar[bool] = True
    subscription: str
    subject: str
    stream_seq: int
    error_class: str
    error: str
    exception: str  # the traceback; none where Postgres or the broker was away


@dataclass(frozen=True, slots=True)
class DeliveryDeferred(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "delivery_deferred"
    task_id: str
    reason: str
    detail: str
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class FloorClaimed(Fact):
    event: ClassVar[str] = "floor_claimed"
    tasks: int


@dataclass(frozen=True, slots=True)
class TasksReaped(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "task_reaped"
    task_id: str
    agent_id: str
    attempt: int
    status: str


@dataclass(frozen=True, slots=True)
class ReaperHolds(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "reaper_holds"


@dataclass(frozen=True, slots=True)
class TasksPromoted(Fact):
    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "tasks_promoted"
    tasks: int


@dataclass(frozen=True, slots=True)
class RelayLeads(Fact):
    event: ClassVar[str] = "relay_leads"
    epoch: int
    low: int


@dataclass(frozen=True, slots=True)
class RelayFollows(Fact):
    event: ClassVar[str] = "relay_follows"
    reason: str


@dataclass(frozen=True, slots=True)
class MessagesPublished(Fact):
    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "messages_published"
    kind: str
    messages: int


@dataclass(frozen=True, slots=True)
class MessageRefused(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "message_refused"
    kind: str
    seq: int
    code: str


@dataclass(frozen=True, slots=True)
class RelayProgressed(Fact):
    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "relay_progressed"
    low: int
    in_flight: int
    missing: int
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class BrokerLost(Fact):
    level: ClassVar[str] = "error"
    event: ClassVar[str] = "broker_lost_messages"
    reason: str
    replay_from: int


@dataclass(frozen=True, slots=True)
class EventsReplayed(Fact):
    event: ClassVar[str] = "events_replayed"
    events: int


@dataclass(frozen=True, slots=True)
class ReplayTaken(Fact):
    """Somebody has asked for a stretch of the log to be published again, and this relay does it."""

    event: ClassVar[str] = "replay_taken"
    replay: int
    after_seq: int
    up_to_seq: int


@dataclass(frozen=True, slots=True)
class ReplayDone(Fact):
    event: ClassVar[str] = "replay_done"
    replay: int
    stored: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class TransportChanged(Fact):
    """Something that the transport met: a lost connection, a repair, a missing durable."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "transport"
    what: str
    detail: str


@dataclass(frozen=True, slots=True)
class TransportFailing(TransportChanged):
    """The broker cannot be reached, or has refused something; told again with every attempt."""

    repeats: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class TransportReady(Fact):
    """What the transport tells when all goes well: it is connected, a stream or a durable was made."""

    event: ClassVar[str] = "transport"
    what: str
    detail: str


@dataclass(frozen=True, slots=True)
class TickFailed(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "tick_failed"
    repeats: ClassVar[bool] = True
    service: str
    error: str


@dataclass(frozen=True, slots=True)
class PostgresFailedOver(Fact):
    """Another server than before: whatever it had not received of the last commits is lost."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "postgres_failed_over"
    failover: int | None
    old_timeline: int
    new_timeline: int
    is_same_cluster: bool
    last_seen_at: str
    detail: str


@dataclass(frozen=True, slots=True)
class RowsDeleted(Fact):
    event: ClassVar[str] = "rows_deleted"
    table: str
    rows: int


@dataclass(frozen=True, slots=True)
class QueueAge(Fact):
    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "queue_age"
    workspace: str
    agent_type: str
    priority: int
    oldest_seconds: float


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
