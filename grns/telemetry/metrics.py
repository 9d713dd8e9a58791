"""The metrics leaf: counts facts, under the names that the registry has for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest, start_http_server

from grns.errors import UnavailableError
from grns.telemetry import registry
from grns.telemetry.collectors import CounterSeries, GaugeSeries, HistogramSeries
from grns.telemetry.fact import Fact
from grns.telemetry.facts import bus, http, operation, process, relay, upkeep, webhook, work
from grns.telemetry.facts import request as order
from grns.telemetry.metric import Metric, MetricKind

_ALL_TASK_TYPES = "*"


class MetricsLeaf:
    """Counts facts, in a registry of its own: several may live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counts = {
            metric: CounterSeries(metric) for metric in registry.METRICS if metric.kind is MetricKind.COUNTER
        }
        self._times = {
            metric: HistogramSeries(metric)
            for metric in registry.METRICS
            if metric.kind is MetricKind.HISTOGRAM
        }
        self._gauges = {
            metric: GaugeSeries(metric) for metric in registry.METRICS if metric.kind is MetricKind.GAUGE
        }
        for series in (*self._counts.values(), *self._times.values(), *self._gauges.values()):
            self.registry.register(series)
        self._by_name = {metric.name: series for metric, series in self._gauges.items()}
        self._readers: dict[type[Fact], Callable[[Any], None]] = (
            self._work_readers() | self._bus_readers() | self._upkeep_readers()
        )
        self._set(registry.BUILD, 1, version("grns"))

    def read(self, fact: Fact) -> None:
        """Count one fact."""
        reader = self._readers.get(type(fact))
        if reader is not None:
            reader(fact)

    def exposition(self) -> bytes:
        """Return all metrics, as Prometheus reads them."""
        return generate_latest(self.registry)

    def _work_readers(self) -> dict[type[Fact], Callable[[Any], None]]:
        count = self._count
        # Looked up once: these two are asked for each task.
        self._claims, self._queue_wait = self._counts[registry.CLAIMS], self._times[registry.QUEUE_WAIT]
        self._attempts = self._counts[registry.ATTEMPTS]
        self._run, self._task = self._times[registry.RUN], self._times[registry.TASK]
        return {
            work.AttemptStarted: self._claimed,
            work.TaskNotClaimed: lambda fact: count(registry.CLAIM_CONFLICTS, fact.reason),
            work.AttemptFinished: self._finished,
            work.LeaseLost: lambda fact: count(registry.LEASES_LOST, fact.reason),
            work.RenewalsUnanswered: lambda fact: count(registry.RENEW_FAILURES, number=fact.times),
            work.DeliveryDeferred: lambda fact: count(registry.DEFERRED, fact.reason),
            work.PollClaimed: lambda fact: count(registry.POLL_CLAIMS, number=fact.tasks),
            work.WorkerPaused: lambda fact: self._note_pause(fact, 1),
            work.WorkerResumed: lambda fact: self._note_pause(fact, 0),
        }

    def _bus_readers(self) -> dict[type[Fact], Callable[[Any], None]]:
        count = self._count
        return {
            order.CommandHandled: lambda fact: count(
                registry.NATS_REQUESTS, fact.kind, fact.way, fact.answer
            ),
            bus.JetStreamOutOfRoom: lambda _: count(registry.OUT_OF_ROOM),
            bus.RejectedMessageStored: lambda fact: count(registry.REJECTED, fact.reason),
            relay.MessagesPublished: lambda fact: count(registry.PUBLISHED, fact.kind, number=fact.messages),
            relay.MessageRefused: lambda fact: count(registry.REFUSED, fact.kind, fact.code),
            relay.RelayProgressed: self._progressed,
            relay.RelayStandby: self._follows,
            relay.BrokerLost: lambda _: count(registry.BROKER_LOSSES),
            http.RequestAnswered: self._answered,
        }

    def _upkeep_readers(self) -> dict[type[Fact], Callable[[Any], None]]:
        count = self._count
        return {
            upkeep.TasksReaped: self._reaped,
            upkeep.TasksPromoted: lambda fact: count(registry.PROMOTIONS, number=fact.tasks),
            upkeep.MessagesExpired: lambda fact: count(registry.MESSAGES_EXPIRED, number=fact.messages),
            upkeep.Measured: self._measured,
            upkeep.InvariantChecked: lambda fact: self._set(
                registry.VIOLATIONS, fact.violations, fact.invariant
            ),
            upkeep.LogCounted: self._log_counted,
            upkeep.StatsStandby: lambda _: self._set(registry.STATS_LAG, 0),
            operation.BatchMoved: self._moved,
            webhook.Delivered: lambda fact: self._attempted("delivered", fact),
            webhook.NotDelivered: lambda fact: self._attempted(fact.error, fact),
            webhook.DeliveriesMade: lambda fact: self._set(registry.WEBHOOK_BEHIND, fact.behind),
            webhook.WebhookDisabled: lambda fact: count(registry.WEBHOOKS_DISABLED, fact.reason),
            process.PostgresFailedOver: lambda _: count(registry.FAILOVERS),
            process.TickFailed: lambda fact: count(registry.TICK_FAILURES, fact.service),
            process.ChoresFailed: self._chores_failed,
        }

    def _count(self, metric: Metric, *labels: str, number: int = 1) -> None:
        self._counts[metric].add(*labels, number=number)

    def _set(self, metric: Metric, value: float, *labels: str) -> None:
        self._gauges[metric].set(value, *labels)

    def _chores_failed(self, fact: process.ChoresFailed) -> None:
        for chore in fact.chores:
            self._count(registry.TICK_FAILURES, f"janitor_{chore}")

    def _claimed(self, fact: work.AttemptStarted) -> None:
        self._claims.add(fact.task_type, fact.source)
        self._queue_wait.observe(fact.task_type, fact.queued_seconds)

    def _finished(self, fact: work.AttemptFinished) -> None:
        self._attempts.add(fact.task_type, fact.status)
        self._run.observe(fact.task_type, fact.run_seconds)
        if fact.status == "retry_wait":
            self._count(registry.RETRIES, fact.error_class or "unknown")
        elif fact.total_seconds is not None:
            self._task.observe(fact.task_type, fact.total_seconds)
        if fact.status in ("dead", "failed"):
            self._count(registry.DEAD_LETTERS, fact.status)

    def _reaped(self, fact: upkeep.TasksReaped) -> None:
        self._count(registry.LEASE_EXPIRATIONS, fact.status)
        if fact.status == "dead":
            self._count(registry.DEAD_LETTERS, fact.status)

    def _note_pause(self, fact: work.WorkerPaused | work.WorkerResumed, value: int) -> None:
        self._set(registry.POOL_PAUSED, value, fact.agent_type, fact.task_type or _ALL_TASK_TYPES)

    def _progressed(self, fact: relay.RelayProgressed) -> None:
        self._set(registry.RELAY_LAG, fact.lag_seconds)
        self._set(registry.RELAY_IN_FLIGHT, fact.in_flight)
        self._set(registry.RELAY_MISSING, fact.missing)

    def _follows(self, _fact: relay.RelayStandby) -> None:
        """What the lead told is the next leader's to tell."""
        for metric in (registry.RELAY_LAG, registry.RELAY_IN_FLIGHT, registry.RELAY_MISSING):
            self._set(metric, 0)

    def _log_counted(self, fact: upkeep.LogCounted) -> None:
        self._count(registry.LOG_ROWS_COUNTED, number=fact.rows)
        self._set(registry.STATS_LAG, fact.age_seconds)

    def _measured(self, fact: upkeep.Measured) -> None:
        self._by_name[fact.metric].replace(fact.readings)
        self._set(registry.MEASURED_AT, time.time(), fact.metric)

    def _moved(self, fact: operation.BatchMoved) -> None:
        self._count(registry.OPERATION_TASKS, fact.action, "moved", number=fact.tasks)
        self._count(registry.OPERATION_TASKS, fact.action, "skipped", number=fact.skipped)

    def _attempted(self, outcome: str, fact: webhook.Delivered | webhook.NotDelivered) -> None:
        self._count(registry.WEBHOOK_ATTEMPTS, outcome)
        self._times[registry.WEBHOOK_SECONDS].observe(outcome, fact.seconds)

    def _answered(self, fact: http.RequestAnswered) -> None:
        self._count(registry.HTTP_REQUESTS, fact.operation, str(fact.status))
        self._times[registry.HTTP_SECONDS].observe(fact.operation, fact.seconds)


def serve(leaf: MetricsLeaf, host: str, port: int) -> Callable[[], None]:
    """Serve the metrics over HTTP; returns what stops it. `UnavailableError` where the port is taken."""
    try:
        server, thread = start_http_server(port, addr=host, registry=leaf.registry)
    except OSError as error:
        raise UnavailableError(f"metrics cannot be served on {host}:{port}: {error.strerror}") from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
