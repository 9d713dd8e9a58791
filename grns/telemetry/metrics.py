"""Every metric, declared once: only these can be counted. `docs/metrics.md` lists the same.

Values of labels are words of grns or names that users choose: task types, pools, workspaces, classes of
errors. Never an id, nor anything else of which there is one per task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grns.model.task import TaskStatus
from grns.telemetry.metric import Label, Metric, MetricKind

# From a cached answer to a slow task.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)

_POOL = ("workspace", "agent_type")
_DURABLE = ("stream", "consumer")
_PRIORITY = Label("priority", ("0", "1", "2", "3"))
_STATUS = Label("status", tuple(TaskStatus))
_CONFLICT = Label(
    "reason",
    (
        "lost_race", "not_due", "terminal", "no_handler", "unknown_task", "other_workspace",
        "other_agent_type", "routed", "paused", "locked", "agent_full", "stopping",
    ),
)  # fmt: skip


def _declare(kind: MetricKind, **fixed: Any) -> Callable[..., Metric]:
    def metric(name: str, exported_by: str, help: str, *labels: str | Label, **options: Any) -> Metric:
        named = tuple(label if isinstance(label, Label) else Label(label) for label in labels)
        return Metric(name, kind, help, exported_by, named, **{**fixed, **options})

    return metric


_counter = _declare(MetricKind.COUNTER)
_gauge = _declare(MetricKind.GAUGE)
_oldest = _declare(MetricKind.GAUGE, merge=max)
_seconds = _declare(MetricKind.HISTOGRAM, bounds=_BUCKETS, most=100)  # a series has twenty lines

# fmt: off
# ---------------------------------------------------------------- workers
CLAIMS = _counter("grns_claims_total", "worker", "Tasks claimed, by source.", "task_type",
    Label("source", ("priority", "shared", "poll", "hint")))
OUTPUT_DROPPED = _counter("grns_output_chunks_dropped_total", "worker, api",
    "Chunks of output that were not sent: the broker was away, or too slow.")
CLAIM_CONFLICTS = _counter("grns_claim_conflicts_total", "worker",
    "Commands that claimed nothing, by reason.", _CONFLICT)
POLL_CLAIMS = _counter("grns_poll_claims_total", "worker", "Tasks claimed by fallback polling.")
ATTEMPTS = _counter("grns_attempts_total", "worker", "Attempts that ended, by the status of the task.",
    "task_type", _STATUS)
RETRIES = _counter("grns_retries_total", "worker", "Retries scheduled, by error class.", "error_class",
    most=200)
DEAD_LETTERS = _counter("grns_dead_letters_total", "worker, reaper", "Tasks that ended dead or failed.",
    Label("status", (TaskStatus.DEAD, TaskStatus.FAILED)))
QUEUE_WAIT = _seconds("grns_queue_wait_seconds", "worker", "Time from queued to claimed.", "task_type")
RUN = _seconds("grns_run_seconds", "worker", "Time in the handler.", "task_type")
TASK = _seconds("grns_task_seconds", "worker",
    "Time from created to ended by a worker, including all attempts and waits.", "task_type")
LEASES_LOST = _counter("grns_leases_lost_total", "worker", "Leases lost while the task was running.",
    Label("reason", ("lost", "deadline", "finish")))
RENEW_FAILURES = _counter("grns_renew_failures_total", "worker", "Lease renewals without an answer.")
DEFERRED = _counter("grns_deliveries_deferred_total", "worker, command-server", "Deliveries deferred.",
    "reason", most=100)
REJECTED = _counter("grns_messages_rejected_total", "worker, command-server, janitor", "Rejected messages.",
    "reason", most=100)
POOL_PAUSED = _gauge("grns_pool_paused", "worker",
    "1 while a task type of the worker's pool, or the whole pool (*), is paused.", "agent_type", "task_type",
    merge=max)

# ---------------------------------------------------------------- reaper, retry scheduler
LEASE_EXPIRATIONS = _counter("grns_lease_expirations_total", "reaper",
    "Leases that expired and were reaped, by the status of the task.",
    Label("status", (TaskStatus.QUEUED, TaskStatus.DEAD, TaskStatus.CANCELLED)))
ATTEMPTS_OVERDUE = _counter("grns_attempts_overdue_total", "reaper",
    "Attempts that took longer than expected.")
ATTEMPTS_STALLED = _counter("grns_attempts_stalled_total", "reaper",
    "Attempts that were ended because they reported no progress.")
PROMOTIONS = _counter("grns_promotions_total", "scheduler", "Due tasks queued.")

# ---------------------------------------------------------------- relay
PUBLISHED = _counter("grns_messages_published_total", "relay", "Messages that the broker accepted.", "kind",
    most=200)
REFUSED = _counter("grns_messages_refused_total", "relay", "Messages that the broker refused.", "kind",
    "code", most=200)
RELAY_LAG = _gauge("grns_relay_lag_seconds", "relay",
    "Age of the oldest row that the leader has read and not published.")
RELAY_IN_FLIGHT = _gauge("grns_relay_in_flight", "relay",
    "Messages of the leader that the broker has not acknowledged.")
RELAY_MISSING = _gauge("grns_relay_missing_rows", "relay",
    "Missing numbers of the event log: their transactions may be open.")
BROKER_LOSSES = _counter("grns_broker_losses_total", "relay",
    "Losses of acknowledged messages at the broker.")
OUT_OF_ROOM = _counter("grns_jetstream_out_of_room_total", "every process",
    "Refusals of a JetStream that is out of space, at most one per second.")

# ---------------------------------------------------------------- stats
LOG_ROWS_COUNTED = _counter("grns_log_rows_counted_total", "stats", "Rows of the event log counted.")
STATS_LAG = _gauge("grns_stats_lag_seconds", "stats", "Age of the latest row when it was counted.")

# ---------------------------------------------------------------- janitor
TASKS = _gauge("grns_tasks", "janitor", "Tasks by status, as far as the event log is counted.", "workspace",
    _STATUS, most=2000)
QUEUE_OLDEST = _oldest("grns_queue_oldest_seconds", "janitor",
    "Time that the oldest task of a pool and priority has been queued; 0 if none is queued.", *_POOL,
    _PRIORITY, most=2000)
UNSERVED_OLDEST = _oldest("grns_unserved_oldest_seconds", "janitor",
    "Time that a task has been queued whose type no live worker of its pool handles.", "workspace",
    "agent_type", "task_type")
DUE_OLDEST = _oldest("grns_due_oldest_seconds", "janitor",
    "Time that a retry or delayed task has been due and not queued.")
UNDECIDED_OLDEST = _oldest("grns_schedule_due_oldest_seconds", "janitor",
    "Time that a schedule has been due and nothing was decided.")
LAPSED_OLDEST = _oldest("grns_expired_lease_oldest_seconds", "janitor",
    "Time since the oldest expired lease that was not reaped.")
UNPUBLISHED_OLDEST = _oldest("grns_unpublished_oldest_seconds", "janitor",
    "Age of the oldest unpublished row of the event log.")
UNCOUNTED_OLDEST = _oldest("grns_uncounted_oldest_seconds", "janitor",
    "Age of the oldest uncounted row of the event log.")
UNFOLLOWED_OLDEST = _oldest("grns_unfollowed_oldest_seconds", "janitor",
    "Age of the oldest row of the event log that the follower of workflows has not read.")
UNADMITTED_OLDEST = _oldest("grns_unadmitted_oldest_seconds", "janitor",
    "Time that tasks have waited for room in their limits while no admitter led.")
UNSEEN_OLDEST = _oldest("grns_question_unseen_oldest_seconds", "janitor",
    "Time that a question to people has been open and none of them has looked at it.")
WORKERS = _gauge("grns_workers", "janitor", "Live workers.", *_POOL)
WORKER_SLOTS = _gauge("grns_worker_slots", "janitor", "Slots of live workers.", *_POOL)
WORKER_SLOTS_TAKEN = _gauge("grns_worker_slots_taken", "janitor",
    "Tasks that live workers ran at their last heartbeat.", *_POOL)
AGENTS = _gauge("grns_agents", "janitor", "Agents with a name, by health.", *_POOL, "health")
BUDGET_USED = _gauge("grns_budget_used_ratio", "janitor",
    "Share of a budget that is used in its present period; 1: it is used up.", "workspace", "budget")
CONSUMER_PENDING = _gauge("grns_consumer_pending_messages", "janitor",
    "Messages not yet delivered to a durable consumer.", *_DURABLE, most=2000)
CONSUMER_UNACKNOWLEDGED = _gauge("grns_consumer_unacknowledged_messages", "janitor",
    "Messages delivered and not acknowledged: they wait in a worker or a subscriber.", *_DURABLE, most=2000)
CONSUMER_REDELIVERED = _gauge("grns_consumer_redelivered_messages", "janitor",
    "Unacknowledged messages that were delivered more than once.", *_DURABLE, most=2000)
MEASURED_AT = _gauge("grns_measured_timestamp_seconds", "janitor",
    "Unix time at which the janitor last read the gauge.", "metric", merge=max)
MESSAGES_EXPIRED = _counter("grns_rejected_messages_expired_total", "janitor",
    "Open rejected messages deleted because their workspace kept too many.")
VIOLATIONS = _gauge("grns_invariant_violations", "janitor", "Violations of an invariant at the last check.",
    "invariant")
WAITS_REPAIRED = _counter("grns_waits_repaired_total", "scheduler",
    "Tasks found waiting for what had happened already, and put right. Each is a bug.")
ADMISSIONS = _counter("grns_admissions_total", "scheduler", "Tasks queued because their limits had room.")
SCHEDULE_DECISIONS = _counter("grns_schedule_decisions_total", "scheduler",
    "Times of schedules that were decided.", Label("outcome", ("submitted", "skipped", "missed")))
FAILOVERS = _counter("grns_postgres_failovers_total", "janitor", "Failovers of PostgreSQL detected.")

# ---------------------------------------------------------------- operations, requests, HTTP, every process
OPERATION_TASKS = _counter("grns_operation_tasks_total", "operations", "Tasks processed by bulk operations.",
    Label("action", ("redrive", "discard", "cancel")), Label("outcome", ("moved", "skipped")))
NATS_REQUESTS = _counter("grns_nats_requests_total", "command-server",
    "Submit and cancel requests over NATS, by answer.", "kind", Label("way", ("command", "request")),
    "answer")
HTTP_REQUESTS = _counter("grns_http_requests_total", "api",
    "HTTP requests answered; status 0: the client disconnected.", "operation", "status", most=1000)
HTTP_SECONDS = _seconds("grns_http_request_seconds", "api", "Time to answer an HTTP request.", "operation")
WEBHOOK_ATTEMPTS = _counter("grns_webhook_attempts_total", "webhooks",
    "Webhook delivery attempts, by outcome.", "outcome")
WEBHOOK_SECONDS = _seconds("grns_webhook_seconds", "webhooks", "Time of a webhook delivery attempt.",
    "outcome")
WEBHOOKS_DISABLED = _counter("grns_webhooks_disabled_total", "webhooks", "Webhooks disabled by grns.",
    "reason")
WEBHOOK_BEHIND = _gauge("grns_webhook_behind_rows", "webhooks",
    "Rows of the event log that webhooks have not processed.")
TICK_FAILURES = _counter("grns_tick_failures_total", "every process",
    "Failed rounds of a daemon, which are retried.", "service")
BUILD = _gauge("grns_build_info", "every process", "1, labeled with the version of grns.", "version")
# fmt: on

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
