"""Every metric there is, declared once: what is not here cannot be counted. `docs/metrics.md` has the same.

A label's values are a few words of ours, or what users name: task types, agent types, workspaces,
classes of errors. Never an id, nor anything else of which there is one for each task.
"""

from __future__ import annotations

from functools import partial

from grns.model.task import Status
from grns.telemetry.metric import Label, Merge, Metric, MetricKind

# Seconds, from what a cache answers in to what a slow agent takes.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)

_WORKSPACE, _AGENT_TYPE, _TASK_TYPE = Label("workspace"), Label("agent_type"), Label("task_type")
_PRIORITY = Label("priority", ("0", "1", "2", "3"))
_ERROR_CLASS, _REASON, _KIND = Label("error_class"), Label("reason"), Label("kind")
_QUEUE = (_WORKSPACE, _AGENT_TYPE, _PRIORITY)
_POOL = (_WORKSPACE, _AGENT_TYPE)
_DURABLE = (Label("stream"), Label("consumer"))

_counter = partial(Metric, kind=MetricKind.COUNTER)
_gauge = partial(Metric, kind=MetricKind.GAUGE)
_oldest = partial(_gauge, merge=Merge.MAX, told_by="janitor")
# A series of a histogram is twenty lines.
_seconds = partial(Metric, kind=MetricKind.HISTOGRAM, bounds=_SECONDS, most=100)

# ---------------------------------------------------------------- workers
CLAIMS = _counter(
    name="grns_claims_total",
    help="Tasks claimed, by source.",
    told_by="worker",
    labels=(_TASK_TYPE, Label("source", ("priority", "shared", "poll"))),
)
CLAIM_CONFLICTS = _counter(
    name="grns_claim_conflicts_total",
    help="Commands that claimed nothing, by reason.",
    told_by="worker",
    labels=(
        Label(
            "reason",
            (
                "lost_race", "not_due", "terminal", "no_handler", "unknown_task", "other_workspace",
                "other_agent_type", "paused", "locked", "stopping",
            ),
        ),
    ),
)  # fmt: skip
POLL_CLAIMS = _counter(
    name="grns_poll_claims_total",
    help="Tasks claimed by fallback polling.",
    told_by="worker",
)
ATTEMPTS = _counter(
    name="grns_attempts_total",
    help="Attempts that ended, by the status of the task.",
    told_by="worker",
    labels=(_TASK_TYPE, Label("status", tuple(Status))),
)
RETRIES = _counter(
    name="grns_retries_total",
    help="Retries scheduled, by error class.",
    told_by="worker",
    labels=(_ERROR_CLASS,),
    most=200,
)
DEAD_LETTERS = _counter(
    name="grns_dead_letters_total",
    help="Tasks that ended dead or failed.",
    told_by="worker, reaper",
    labels=(Label("status", (Status.DEAD, Status.FAILED)),),
)
QUEUE_WAIT = _seconds(
    name="grns_queue_wait_seconds",
    help="Time from queued to claimed.",
    told_by="worker",
    labels=(_TASK_TYPE,),
)
RUN = _seconds(
    name="grns_run_seconds",
    help="Time in the handler.",
    told_by="worker",
    labels=(_TASK_TYPE,),
)
TASK = _seconds(
    name="grns_task_seconds",
    help="Time from created to ended, including all attempts and waits.",
    told_by="worker",
    labels=(_TASK_TYPE,),
)
LEASES_LOST = _counter(
    name="grns_leases_lost_total",
    help="Leases lost while the task was running.",
    told_by="worker",
    labels=(Label("reason", ("lost", "deadline", "finish")),),
)
RENEW_FAILURES = _counter(
    name="grns_renew_failures_total",
    help="Lease renewals without an answer.",
    told_by="worker",
)
DEFERRED = _counter(
    name="grns_deliveries_deferred_total",
    help="Deliveries deferred.",
    told_by="worker, command-server",
    labels=(_REASON,),
    most=100,
)
REJECTED = _counter(
    name="grns_messages_rejected_total",
    help="Rejected messages.",
    told_by="worker, command-server, janitor",
    labels=(_REASON,),
    most=100,
)
POOL_PAUSED = _gauge(
    name="grns_pool_paused",
    help="1 while a task type of the worker's pool, or the whole pool (*), is paused.",
    told_by="worker",
    labels=(_AGENT_TYPE, _TASK_TYPE),
    merge=Merge.MAX,
)

# ---------------------------------------------------------------- reaper, retry scheduler
LEASE_EXPIRATIONS = _counter(
    name="grns_lease_expirations_total",
    help="Leases that expired and were reaped, by the status of the task.",
    told_by="reaper",
    labels=(Label("status", (Status.QUEUED, Status.DEAD, Status.CANCELLED)),),
)
PROMOTIONS = _counter(
    name="grns_promotions_total",
    help="Due tasks queued.",
    told_by="scheduler",
)

# ---------------------------------------------------------------- relay
PUBLISHED = _counter(
    name="grns_messages_published_total",
    help="Messages that the broker accepted.",
    told_by="relay",
    labels=(_KIND,),
    most=200,
)
REFUSED = _counter(
    name="grns_messages_refused_total",
    help="Messages that the broker refused.",
    told_by="relay",
    labels=(_KIND, Label("code")),
    most=200,
)
RELAY_LAG = _gauge(
    name="grns_relay_lag_seconds",
    help="Age of the oldest row that the leader has read and not published.",
    told_by="relay",
)
RELAY_IN_FLIGHT = _gauge(
    name="grns_relay_in_flight",
    help="Messages of the leader that the broker has not acknowledged.",
    told_by="relay",
)
RELAY_MISSING = _gauge(
    name="grns_relay_missing_rows",
    help="Missing numbers of the event log: their transactions may be open.",
    told_by="relay",
)
BROKER_LOSSES = _counter(
    name="grns_broker_losses_total",
    help="Losses of acknowledged messages at the broker.",
    told_by="relay",
)

OUT_OF_ROOM = _counter(
    name="grns_jetstream_out_of_room_total",
    help="Refusals of a JetStream that is out of space, at most one per second.",
    told_by="every process",
)

# ---------------------------------------------------------------- counter
LOG_ROWS_COUNTED = _counter(
    name="grns_log_rows_counted_total",
    help="Rows of the event log counted.",
    told_by="stats",
)
STATS_LAG = _gauge(
    name="grns_stats_lag_seconds",
    help="Age of the latest row when it was counted.",
    told_by="stats",
)

# ---------------------------------------------------------------- janitor: what it finds at the servers
TASKS = _gauge(
    name="grns_tasks",
    help="Tasks by status, as far as the event log is counted.",
    told_by="janitor",
    labels=(_WORKSPACE, Label("status", tuple(Status))),
    most=2000,
)
QUEUE_OLDEST = _oldest(
    name="grns_queue_oldest_seconds",
    help="Time that the oldest task of a pool and priority has been queued; 0 if none is queued.",
    labels=_QUEUE,
    most=2000,
)
UNSERVED_OLDEST = _oldest(
    name="grns_unserved_oldest_seconds",
    help="Time that a task has been queued whose type no live worker of its pool handles.",
    labels=(_WORKSPACE, _AGENT_TYPE, _TASK_TYPE),
)
DUE_OLDEST = _oldest(
    name="grns_due_oldest_seconds",
    help="Time that a retry or delayed task has been due and not queued.",
)
LAPSED_OLDEST = _oldest(
    name="grns_expired_lease_oldest_seconds",
    help="Time since the oldest expired lease that was not reaped.",
)
UNPUBLISHED_OLDEST = _oldest(
    name="grns_unpublished_oldest_seconds",
    help="Age of the oldest unpublished row of the event log.",
)
UNCOUNTED_OLDEST = _oldest(
    name="grns_uncounted_oldest_seconds",
    help="Age of the oldest uncounted row of the event log.",
)
WORKERS = _gauge(
    name="grns_workers",
    help="Live workers.",
    told_by="janitor",
    labels=_POOL,
)
WORKER_SLOTS = _gauge(
    name="grns_worker_slots",
    help="Slots of live workers.",
    told_by="janitor",
    labels=_POOL,
)
WORKER_SLOTS_TAKEN = _gauge(
    name="grns_worker_slots_taken",
    help="Tasks that live workers ran at their last heartbeat.",
    told_by="janitor",
    labels=_POOL,
)
CONSUMER_PENDING = _gauge(
    name="grns_consumer_pending_messages",
    help="Messages not yet delivered to a durable consumer.",
    told_by="janitor",
    labels=_DURABLE,
    most=2000,
)
CONSUMER_UNACKNOWLEDGED = _gauge(
    name="grns_consumer_unacknowledged_messages",
    help="Messages delivered and not acknowledged: they run, or wait in a worker.",
    told_by="janitor",
    labels=_DURABLE,
    most=2000,
)
CONSUMER_REDELIVERED = _gauge(
    name="grns_consumer_redelivered_messages",
    help="Unacknowledged messages that were delivered more than once.",
    told_by="janitor",
    labels=_DURABLE,
    most=2000,
)
MEASURED_AT = _gauge(
    name="grns_measured_timestamp_seconds",
    help="Unix time at which the janitor last read the gauge.",
    told_by="janitor",
    labels=(Label("metric"),),
    merge=Merge.MAX,
)
MESSAGES_EXPIRED = _counter(
    name="grns_rejected_messages_expired_total",
    help="Open rejected messages deleted because their workspace kept too many.",
    told_by="janitor",
)
VIOLATIONS = _gauge(
    name="grns_invariant_violations",
    help="Violations of an invariant at the last check.",
    told_by="janitor",
    labels=(Label("invariant"),),
)
FAILOVERS = _counter(
    name="grns_postgres_failovers_total",
    help="Failovers of PostgreSQL detected.",
    told_by="janitor",
)

# ------------------------------------------------------- operations, orders, HTTP, webhooks, every process
OPERATION_TASKS = _counter(
    name="grns_operation_tasks_total",
    help="Tasks processed by bulk operations.",
    told_by="operations",
    labels=(Label("action", ("redrive", "discard", "cancel")), Label("outcome", ("moved", "skipped"))),
)
NATS_REQUESTS = _counter(
    name="grns_nats_requests_total",
    help="Submit and cancel requests over NATS, by answer.",
    told_by="command-server",
    labels=(_KIND, Label("way", ("command", "request")), Label("answer")),
)
HTTP_REQUESTS = _counter(
    name="grns_http_requests_total",
    help="HTTP requests answered; status 0: the client disconnected.",
    told_by="api",
    labels=(Label("operation"), Label("status")),
    most=1000,
)
HTTP_SECONDS = _seconds(
    name="grns_http_request_seconds",
    help="Time to answer an HTTP request.",
    told_by="api",
    labels=(Label("operation"),),
)
WEBHOOK_ATTEMPTS = _counter(
    name="grns_webhook_attempts_total",
    help="Webhook delivery attempts, by outcome.",
    told_by="webhooks",
    labels=(Label("outcome"),),
)
WEBHOOK_SECONDS = _seconds(
    name="grns_webhook_seconds",
    help="Time of a webhook delivery attempt.",
    told_by="webhooks",
    labels=(Label("outcome"),),
)
WEBHOOKS_DISABLED = _counter(
    name="grns_webhooks_disabled_total",
    help="Webhooks disabled by grns.",
    told_by="webhooks",
    labels=(_REASON,),
)
WEBHOOK_BEHIND = _gauge(
    name="grns_webhook_behind_rows",
    help="Rows of the event log that webhooks have not processed.",
    told_by="webhooks",
)
TICK_FAILURES = _counter(
    name="grns_tick_failures_total",
    help="Failed rounds of a daemon, which are retried.",
    told_by="every process",
    labels=(Label("service"),),
)
BUILD = _gauge(
    name="grns_build_info",
    help="1, labeled with the version of grns.",
    told_by="every process",
    labels=(Label("version"),),
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
