"""Signals of work: tasks, attempts, leases, messages, and what HTTP workers and the bus ask for."""

from __future__ import annotations

from grns.telemetry.signal import Signal, signal

# ---------------------------------------------------------------- attempts


@signal("task_claimed", level="debug", frozen=False)
class AttemptStarted(Signal):
    task_id: str
    task_type: str
    attempt: int
    trace_id: str
    source: str  # priority, shared, poll
    queued_seconds: float


@signal("task_not_claimed", level="debug")
class TaskNotClaimed(Signal):
    task_id: str
    reason: str


@signal("tasks_polled")
class TasksPolled(Signal):
    tasks: int


@signal("attempt_finished", level="debug", frozen=False)
class AttemptFinished(Signal):
    task_id: str
    task_type: str
    attempt: int
    trace_id: str
    status: str
    run_seconds: float
    total_seconds: float | None
    error_class: str | None


@signal("attempt_failed", level="warning")
class AttemptFailed(Signal):
    task_id: str
    task_type: str
    attempt: int
    trace_id: str
    error_class: str
    message: str
    exception: str  # the traceback; empty if the handler raised Fail or Retry itself


@signal("retry_requested")
class RetryRequested(Signal):
    """A handler raised `Retry` and attempts are left. On the last attempt it is `attempt_failed`."""

    task_id: str
    task_type: str
    attempt: int
    trace_id: str
    error_class: str
    message: str
    exception: str  # the traceback, if another error caused it


@signal("task_snoozed")
class AttemptSnoozed(Signal):
    """A handler raised `Snooze`."""

    task_id: str
    task_type: str
    attempt: int
    trace_id: str
    seconds: float


@signal("task_suspended")
class AttemptSuspended(Signal):
    """A handler sleeps, or waits for tasks: its task waits, and the attempt does not count."""

    task_id: str
    task_type: str
    attempt: int
    trace_id: str
    step: str


@signal("output_dropped", level="warning")
class OutputDropped(Signal):
    """A handler streamed while the broker was away, or faster than the broker took it."""

    task_id: str
    attempt: int
    trace_id: str
    chunks: int


@signal("steps_unused", level="warning", throttle_by=("task_type",))
class StepsUnused(Signal):
    """A handler has succeeded without steps that an earlier attempt recorded: its code has changed."""

    task_id: str
    task_type: str
    attempt: int
    trace_id: str
    steps: list[str]


@signal("task_released")
class AttemptReleased(Signal):
    task_id: str
    attempt: int
    trace_id: str
    verdict: str


@signal("claim_returned")
class ClaimReturned(Signal):
    """An HTTP worker disconnected before it received its claim; the attempt does not count."""

    task_id: str
    attempt: int
    trace_id: str
    verdict: str


@signal("handler_overran", level="warning")
class HandlerOverran(Signal):
    task_id: str
    attempt: int
    trace_id: str
    detail: str


@signal("task_crashed", level="error")
class TaskCrashed(Signal):
    error_class: str
    error: str


# ---------------------------------------------------------------- leases


@signal("lease_lost", level="warning")
class LeaseLost(Signal):
    task_id: str
    attempt: int
    trace_id: str
    reason: str  # lost, deadline, finish


@signal("renewals_unanswered", level="debug")
class RenewalsUnanswered(Signal):
    """A worker read from the lease table how many renewals failed; the heartbeat process logs each."""

    times: int


@signal("task_reaped", level="warning")
class TaskReaped(Signal):
    task_id: str
    agent_id: str
    attempt: int
    trace_id: str
    status: str


@signal("attempt_stalled", level="warning")
class AttemptStalled(Signal):
    """An attempt has reported nothing for too long: its lease is taken, and its task is put back."""

    task_id: str
    agent_id: str
    attempt: int
    trace_id: str


@signal("attempt_cut", level="warning")
class AttemptCut(Signal):
    """An agent that was told to stop has not: its lease is taken, and its task is put back."""

    task_id: str
    agent_id: str
    attempt: int
    trace_id: str


@signal("attempt_overdue", level="warning")
class AttemptOverdue(Signal):
    """An attempt takes longer than its submission, or its handler, expected."""

    task_id: str
    agent_id: str
    attempt: int
    trace_id: str


@signal("reaper_grace_started")
class ReaperGraceStarted(Signal):
    """All reapers or Postgres were away: live workers have one lease of time to renew."""

    reason: str = "normal after a restart: workers renew their leases before any task is taken back"


# ---------------------------------------------------------------- pools


@signal("pool_paused", level="warning")
class WorkerPaused(Signal):
    """A pool, or one of its task types, is paused: nothing of it is claimed."""

    agent_type: str
    task_type: str | None
    paused_by: str
    reason: str | None
    until: str | None


@signal("pool_resumed")
class WorkerResumed(Signal):
    agent_type: str
    task_type: str | None


@signal("agent_ordered", level="warning")
class AgentOrdered(Signal):
    """This worker's agent is told to `drain` or to `stop`."""

    agent: str
    order: str
    ordered_by: str | None
    reason: str | None


@signal("no_handler", level="warning")
class NoHandler(Signal):
    """This worker has no handler for a task type; emitted once per type."""

    task_type: str
    task_id: str
    handlers: str


@signal("payload_closed", level="error", throttle_by=("task_type", "code"))
class PayloadClosed(Signal):
    """The secrets of a payload cannot be opened here, or a blob of it cannot be read.

    The task is given back, unspent, unless nothing will help: then it fails.
    """

    task_id: str
    task_type: str
    attempt: int
    trace_id: str
    code: str
    error: str


@signal("agent_nudged", level="debug")
class AgentNudged(Signal):
    agent_type: str
    host: str


@signal("nudge_failed", level="warning", throttle_by=("agent_type", "host", "error"))
class NudgeFailed(Signal):
    agent_type: str
    host: str
    error: str
    pause_seconds: float


@signal("session_spawned")
class SessionSpawned(Signal):
    """A session of an agent was begun, because a task waits for it while it is away."""

    agent_type: str
    agent: str
    task_id: str
    trace_id: str


# ---------------------------------------------------------------- messages


@signal("delivery_deferred", level="warning")
class DeliveryDeferred(Signal):
    task_id: str
    reason: str
    detail: str
    delay_seconds: float


@signal("message_rejected", level="warning")
class RejectedMessageStored(Signal):
    reason: str
    subject: str
    stream_seq: int
    detail: str


@signal("event_not_handled", level="error", throttle_by=("subscription", "error_class", "error", "exception"))
class EventNotHandled(Signal):
    subscription: str
    subject: str
    stream_seq: int
    error_class: str
    error: str
    exception: str  # the traceback; empty if Postgres or the broker was away


@signal("event_skipped", level="warning", throttle_by=("subscription",))
class EventSkipped(Signal):
    """The broker delivered an event that is not among the subscription's kinds."""

    subscription: str
    subject: str
    stream_seq: int


@signal("command_handled", level="debug")
class CommandHandled(Signal):
    """A command or request over NATS was answered; `answer` is its result or the code of the refusal."""

    kind: str
    way: str  # command, request
    answer: str
    message_id: str | None
    task_id: str | None


@signal("command_crashed", level="error")
class CommandCrashed(Signal):
    subject: str
    error_class: str
    error: str


@signal("request_window_full", level="warning", throttle_by=())
class RequestWindowFull(Signal):
    """Too many requests are in progress: others are refused."""

    requests: int
    request_bytes: int


# ---------------------------------------------------------------- bulk operations


@signal("batch_moved", level="debug")
class BatchMoved(Signal):
    operation: int
    action: str
    tasks: int
    skipped: int


@signal("operation_resumed")
class OperationResumed(Signal):
    """The canary of an operation succeeded, or the operation is done."""

    operation: int
    action: str
    state: str


@signal("operation_stopped", level="warning")
class OperationStopped(Signal):
    """An operation waits for a decision, or cannot be done."""

    operation: int
    action: str
    state: str
    reason: str
