"""The metrics leaf: what seed operators watch, under Prometheus' naming rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest, start_http_server
from prometheus_client.registry import Collector

from grns.errors import Unavailable
from grns.telemetry.fact import Fact
from grns.telemetry.facts import bus, http, operation, order, process, relay, upkeep, webhook, work
from grns.telemetry.tally import CountTally, TimeTally

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)

_MOST_ERROR_CLASSES = 200
_ALL_TASK_TYPES = "*"


class MetricsLeaf:
    """Counts facts in a registry of its own. Labels are bounded: types and reasons, never ids."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._error_classes: set[str] = set()
        self._make_tallies()
        self._make_task_metrics()
        self._make_daemon_metrics()
        self._readers: dict[type[Fact], Callable[[Any], None]] = {
            work.TaskClaimed: self._claimed,
            work.TaskNotClaimed: lambda fact: self._conflicts.labels(fact.reason).inc(),
            work.AttemptFinished: self._finished,
            work.LeaseLost: lambda fact: self._leases_lost.labels(fact.reason).inc(),
            work.RenewalsUnanswered: lambda fact: self._renew_failures.inc(fact.times),
            order.OrderHandled: lambda fact: self._orders.add(fact.kind, fact.way, fact.answer),
            bus.MessageRejected: lambda fact: self._rejected.labels(fact.reason).inc(),
            work.DeliveryDeferred: lambda fact: self._deferred.labels(fact.reason).inc(),
            upkeep.TasksReaped: lambda fact: self._expired.labels(fact.status).inc(),
            upkeep.TasksPromoted: lambda fact: self._promoted.inc(fact.tasks),
            relay.MessagesPublished: lambda fact: self._published.labels(fact.kind).inc(fact.messages),
            relay.MessageRefused: lambda fact: self._refused.labels(fact.kind, fact.code).inc(),
            relay.RelayProgressed: self._progressed,
            relay.RelayFollows: self._follows,
            relay.BrokerLost: lambda _: self._broker_losses.inc(),
            process.PostgresFailedOver: lambda _: self._failovers.inc(),
            upkeep.QueueAge: lambda fact: self._queue_age.labels(
                fact.workspace, fact.agent_type, str(fact.priority)
            ).set(fact.oldest_seconds),
            upkeep.InvariantChecked: lambda fact: self._violations.labels(fact.invariant).set(
                fact.violations
            ),
            upkeep.LogCounted: self._counted,
            upkeep.CounterFollows: lambda _: self._count_lag.set(0),
            process.TickFailed: lambda fact: self._tick_failures.labels(fact.service).inc(),
            work.FloorClaimed: lambda fact: self._floor.inc(fact.tasks),
            work.PoolPaused: lambda fact: self._pausing(fact).set(1),
            work.PoolResumed: lambda fact: self._pausing(fact).set(0),
            http.RequestAnswered: self._answered,
            operation.BatchMoved: self._moved,
            webhook.Delivered: lambda fact: self._attempted("delivered", fact),
            webhook.NotDelivered: lambda fact: self._attempted(fact.error, fact),
            webhook.DeliveriesMade: self._made,
            webhook.WebhookDisabled: lambda fact: self._disabled.labels(fact.reason).inc(),
            work.PoolPaused: lambda fact: self._pausing(fact).set(1),
            work.PoolResumed: lambda fact: self._pausing(fact).set(0),
        }

    def _make_tallies(self) -> None:
        self._claims = CountTally("grns_claims", "Tasks claimed", ["task_type", "source"])
        self._attempts = CountTally("grns_attempts", "Attempts that ended", ["task_type", "status"])
        self._orders = CountTally(
            "grns_orders", "Tasks asked for over the bus, or their end", ["kind", "way", "answer"]
        )
        self._queue_wait = _times("grns_queue_wait_seconds", "From queued to claimed")
        self._requests = CountTally("grns_http_requests", "Requests answered", ["operation", "status"])
        self._request_times = TimeTally(
            "grns_http_seconds", "Time until a request was answered", "operation", bounds=_SECONDS
        )
        self._webhook_attempts = CountTally(
            "grns_webhook_attempts", "Attempts to deliver an event to a webhook", ["outcome"]
        )
        self._webhook_times = TimeTally(
            "grns_webhook_seconds", "Time that one took", "outcome", bounds=_SECONDS
        )
        self._run = _times("grns_run_seconds", "Time in the handler")
        self._total = _times("grns_task_seconds", "From created to terminal")
        for tally in (
            self._claims, self._queue_wait, self._attempts, self._run, self._total, self._orders,
            self._requests, self._request_times, self._webhook_attempts, self._webhook_times,
        ):  # fmt: skip
            self.registry.register(tally)

    def _make_task_metrics(self) -> None:
        registry = self.registry
        self._conflicts = Counter(
            "grns_claim_conflicts", "Commands that claimed nothing", ["reason"], registry=registry
        )
        self._retries = Counter("grns_retries", "Retries scheduled", ["error_class"], registry=registry)
        self._dead = Counter(
            "grns_dead_letters", "Tasks that ended dead or failed", ["status"], registry=registry
        )
        self._leases_lost = Counter(
            "grns_leases_lost", "Leases that a worker lost", ["reason"], registry=registry
        )
        self._renew_failures = Counter("grns_renew_failures", "Renewals without an answer", registry=registry)
        self._rejected = Counter("grns_messages_rejected", "Messages refused", ["reason"], registry=registry)
        self._deferred = Counter(
            "grns_deliveries_deferred", "Deliveries given back", ["reason"], registry=registry
        )
        self._floor = Counter("grns_floor_claims", "Tasks claimed without a command", registry=registry)
        self._paused = Gauge(
            "grns_pool_paused",
            "1 while a task type of the pool, or all of it (*), is paused",
            ["agent_type", "task_type"],
            registry=registry,
        )

    def _make_daemon_metrics(self) -> None:
        registry = self.registry
        self._expired = Counter("grns_lease_expirations", "Leases reaped", ["status"], registry=registry)
        self._promoted = Counter("grns_promotions", "Due tasks queued", registry=registry)
        self._published = Counter("grns_messages_published", "Messages relayed", ["kind"], registry=registry)
        self._refused = Counter(
            "grns_messages_refused", "Messages the broker refused", ["kind", "code"], registry=registry
        )
        self._relay_lag = Gauge(
            "grns_relay_lag_seconds", "Age of the oldest row not relayed", registry=registry
        )
        self._relay_flight = Gauge(
            "grns_relay_in_flight", "Messages that await the broker", registry=registry
        )
        self._relay_missing = Gauge(
            "grns_relay_missing_rows", "Numbers of the log not visible", registry=registry
        )
        self._count_rows = Counter("grns_log_rows_counted", "Rows of the log counted", registry=registry)
        self._count_lag = Gauge(
            "grns_counter_lag_seconds", "Age of the latest row when it was counted", registry=registry
        )
        self._broker_losses = Counter(
            "grns_broker_losses", "Times the broker lost messages", registry=registry
        )
        self._failovers = Counter(
            "grns_postgres_failovers", "Failovers of Postgres that were noticed", registry=registry
        )
        self._operations = Counter(
            "grns_operation_tasks",
            "Tasks that bulk operations came to",
            ["action", "outcome"],
            registry=registry,
        )
        self._disabled = Counter(
            "grns_webhooks_disabled", "Webhooks that grns has disabled", ["reason"], registry=registry
        )
        self._webhook_behind = Gauge(
            "grns_webhook_behind_rows",
            "Numbers of the log that are settled, and were not looked through yet",
            registry=registry,
        )
        self._queue_age = Gauge(
            "grns_queue_oldest_seconds",
            "Age of the oldest queued task of a lane",
            ["workspace", "agent_type", "priority"],
            registry=registry,
        )
        self._violations = Gauge(
            "grns_invariant_violations",
            "Times an invariant is violated in the database",
            ["invariant"],
            registry=registry,
        )
        self._tick_failures = Counter(
            "grns_tick_failures", "Ticks that failed", ["service"], registry=registry
        )

    def read(self, fact: Fact) -> None:
        """Count one fact."""
        reader = self._readers.get(type(fact))
        if reader is not None:
            reader(fact)

    def exposition(self) -> bytes:
        """Return all metrics, as Prometheus reads them."""
        return generate_latest(self.registry)

    def register(self, collector: Collector) -> None:
        """Add a collector of somebody else's."""
        self.registry.register(collector)

    def _claimed(self, fact: work.TaskClaimed) -> None:
        self._claims.add(fact.task_type, fact.source)
        self._queue_wait.observe(fact.task_type, fact.queued_seconds)

    def _finished(self, fact: work.AttemptFinished) -> None:
        self._attempts.add(fact.task_type, fact.status)
        self._run.observe(fact.task_type, fact.run_seconds)
        if fact.status == "retry_wait":
            self._retries.labels(self._bounded(fact.error_class or "unknown")).inc()
        elif fact.total_seconds is not None:
            self._total.observe(fact.task_type, fact.total_seconds)
        if fact.status in ("dead", "failed"):
            self._dead.labels(fact.status).inc()

    def _bounded(self, error_class: str) -> str:
        """Return it, or `other` for those beyond the first hundreds: handlers may name them as they like."""
        if len(self._error_classes) < _MOST_ERROR_CLASSES:
            self._error_classes.add(error_class)
        return error_class if error_class in self._error_classes else "other"

    def _pausing(self, fact: work.PoolPaused | work.PoolResumed) -> Gauge:
        return self._paused.labels(fact.agent_type, fact.task_type or _ALL_TASK_TYPES)

    def _moved(self, fact: operation.BatchMoved) -> None:
        self._operations.labels(fact.action, "moved").inc(fact.tasks)
        self._operations.labels(fact.action, "skipped").inc(fact.skipped)

    def _attempted(self, outcome: str, fact: webhook.Delivered | webhook.NotDelivered) -> None:
        self._webhook_attempts.add(outcome)
        self._webhook_times.observe(outcome, fact.seconds)

    def _made(self, fact: webhook.DeliveriesMade) -> None:
        self._webhook_behind.set(fact.behind)

    def _follows(self, _fact: relay.RelayFollows) -> None:
        """What the lead told is the next leader's to tell."""
        for gauge in (self._relay_lag, self._relay_flight, self._relay_missing):
            gauge.set(0)

    def _counted(self, fact: upkeep.LogCounted) -> None:
        self._count_rows.inc(fact.rows)
        self._count_lag.set(fact.age_seconds)

    def _answered(self, fact: http.RequestAnswered) -> None:
        self._requests.add(fact.operation, str(fact.status))
        self._request_times.observe(fact.operation, fact.seconds)

    def _progressed(self, fact: relay.RelayProgressed) -> None:
        self._relay_lag.set(fact.lag_seconds)
        self._relay_flight.set(fact.in_flight)
        self._relay_missing.set(fact.missing)


def _times(name: str, documentation: str) -> TimeTally:
    return TimeTally(name, documentation, "task_type", bounds=_SECONDS)


def serve(leaf: MetricsLeaf, host: str, port: int) -> Callable[[], None]:
    """Serve the metrics over HTTP; returns what stops it. `Unavailable` where the port is taken."""
    try:
        server, thread = start_http_server(port, addr=host, registry=leaf.registry)
    except OSError as error:
        raise Unavailable(f"metrics cannot be served on {host}:{port}: {error.strerror}") from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
