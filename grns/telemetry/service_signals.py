"""Signals of services: processes, the broker, the relay, the other daemons, HTTP and webhooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grns.telemetry.signal import Signal, signal

# ---------------------------------------------------------------- processes


@signal("service_started")
class ServiceStarted(Signal):
    service: str


@signal("service_stopped")
class ServiceStopped(Signal):
    service: str


@signal("tick_failed", level="warning", throttle_by=("service", "error"))
class TickFailed(Signal):
    service: str
    error: str


@signal("chores_failed", level="warning", throttle_by=("error",))
class ChoresFailed(Signal):
    """Chores of one round of the janitor that failed for the same reason."""

    error: str
    chores: Sequence[str]


@signal("postgres_awaited", level="warning", throttle_by=("advice",))
class PostgresAwaited(Signal):
    """A process that starts waits for Postgres."""

    error: str
    advice: str


@signal("postgres_failed_over", level="warning")
class PostgresFailedOver(Signal):
    """Another server answers than before: the last commits that it had not received are lost."""

    failover: int | None
    old_timeline: int
    new_timeline: int
    is_same_cluster: bool
    last_seen_at: str
    detail: str


# ---------------------------------------------------------------- the broker


@signal("transport", level="warning")
class TransportChanged(Signal):
    """A lost connection, a repair, a missing durable consumer."""

    what: str
    detail: str


@signal("transport", level="warning", throttle_by=("what", "detail"))
class TransportFailing(Signal):
    """The broker cannot be reached or refused something; emitted with every attempt."""

    what: str
    detail: str


@signal("transport")
class TransportReady(Signal):
    """A connection, a stream or a durable consumer was made."""

    what: str
    detail: str


@signal("jetstream_out_of_room", level="error", throttle_by=("error", "advice"))
class JetStreamOutOfRoom(Signal):
    """JetStream stores nothing: too little storage, a full disk, or stopped until a restart."""

    error: str
    advice: str = "free the disk or give JetStream more room, then restart nats-server; tasks run meanwhile"


# ---------------------------------------------------------------- the relay


@signal("relay_became_leader")
class RelayBecameLeader(Signal):
    epoch: int
    low: int


@signal("relay_became_standby")
class RelayStandby(Signal):
    reason: str


@signal("messages_published", level="debug")
class MessagesPublished(Signal):
    kind: str
    messages: int


@signal("message_refused", level="warning")
class MessageRefused(Signal):
    kind: str
    seq: int
    code: str


@signal("relay_progressed", level="debug")
class RelayProgressed(Signal):
    low: int
    in_flight: int
    missing: int
    lag_seconds: float


@signal("relay_held_up", level="error", throttle_by=("messages", "payload_bytes"))
class RelayHeldUp(Signal):
    """Too much waits for streams that do not accept it: the relay reads no more of the event log."""

    messages: int
    payload_bytes: int


@signal("broker_lost_messages", level="error")
class BrokerLost(Signal):
    reason: str
    replay_from: int


@signal("events_replayed")
class EventsReplayed(Signal):
    events: int


@signal("replay_taken")
class ReplayTaken(Signal):
    """A relay started a requested replay of a range of the event log."""

    replay: int
    after_seq: int
    up_to_seq: int


@signal("replay_done")
class ReplayDone(Signal):
    replay: int
    stored: int
    duplicates: int


# ---------------------------------------------------------------- scheduler, stats, janitor


@signal("tasks_promoted", level="debug")
class TasksPromoted(Signal):
    tasks: int


@signal("stats_became_leader")
class StatsBecameLeader(Signal):
    epoch: int
    low: int


@signal("stats_became_standby")
class StatsStandby(Signal):
    reason: str


@signal("follower_became_leader")
class FollowerBecameLeader(Signal):
    epoch: int
    low: int


@signal("follower_became_standby")
class FollowerStandby(Signal):
    reason: str


@signal("log_followed", level="debug")
class LogFollowed(Signal):
    """Rows of the event log were followed; `queued` tasks had waited for others, `postponed` are locked."""

    rows: int
    low: int
    missing: int
    queued: int
    postponed: int


@signal("admitter_became_leader")
class AdmitterBecameLeader(Signal):
    epoch: int
    low: int


@signal("admitter_became_standby")
class AdmitterStandby(Signal):
    reason: str


@signal("tasks_admitted", level="debug")
class TasksAdmitted(Signal):
    """Tasks that fall under limits were queued; rows of the event log were read up to `low`."""

    number: int
    rows: int
    low: int


@signal("waits_repaired", level="error")
class WaitsRepaired(Signal):
    """Tasks were found waiting for what had happened already, and are put right: a bug, please report it."""

    number: int
    task_ids: Sequence[str]


@signal("schedules_decided")
class SchedulesDecided(Signal):
    """Times of schedules were due. So many were decided, by outcome; the first of them was so late."""

    outcomes: Mapping[str, int]
    late_seconds: float


@signal("schedule_paused", level="error")
class SchedulePaused(Signal):
    """A schedule was paused: its times or its task are invalid, or its tasks failed. See the reason."""

    workspace: str
    schedule: str
    reason: str


@signal("log_counted", level="debug")
class LogCounted(Signal):
    """Rows of the event log were counted, the latest of this age; up to `low` all are counted."""

    rows: int
    low: int
    missing: int
    age_seconds: float


@signal("rows_deleted")
class RowsDeleted(Signal):
    table: str
    rows: int


@signal("rejected_messages_expired", level="warning")
class MessagesExpired(Signal):
    """Open rejected messages were deleted because their workspace kept too many."""

    messages: int


@signal("gauges_measured", level="debug")
class GaugesMeasured(Signal):
    """All series of a gauge: the values of their labels, and the number."""

    metric: str
    readings: Sequence[tuple[Sequence[str], float]]


@signal("invariant_checked", level="debug")
class InvariantChecked(Signal):
    invariant: str
    violations: int


@signal("invariant_violated", level="error")
class InvariantViolated(Signal):
    """A row contradicts an invariant; `grns admin verify` shows all of them."""

    invariant: str
    task_id: str | None
    detail: str


# ---------------------------------------------------------------- HTTP


@signal("request_answered", level="debug")
class RequestAnswered(Signal):
    """An HTTP request was answered; `status` 0: the client disconnected."""

    operation: str
    method: str
    status: int
    seconds: float


@signal("request_failed", level="warning", throttle_by=("error",))
class RequestFailed(Signal):
    """Postgres or the broker did not answer an HTTP request in time."""

    operation: str
    error: str


@signal("request_crashed", level="error")
class RequestCrashed(Signal):
    """A bug ended an HTTP request; the client has the trace id."""

    operation: str
    trace_id: str
    exception: str


# ---------------------------------------------------------------- webhooks


@signal("webhook_deliveries_made", level="debug")
class WebhookDeliveriesMade(Signal):
    """The event log was read up to `low`; `age_seconds` is the age of the last event read."""

    deliveries: int
    low: int
    behind: int
    age_seconds: float


@signal("webhook_delivered", level="debug")
class WebhookDelivered(Signal):
    webhook: str
    seq: int
    kind: str
    attempt: int
    seconds: float


@signal("webhook_not_delivered", level="warning", throttle_by=("webhook", "error"))
class WebhookNotDelivered(Signal):
    """A delivery failed; it is tried again in `delay_seconds`, or not at all if that is None."""

    webhook: str
    seq: int
    kind: str
    attempt: int
    error: str
    detail: str
    seconds: float
    delay_seconds: float | None


@signal("webhook_disabled", level="warning")
class WebhookDisabled(Signal):
    webhook: str
    reason: str
