"""The metrics of a process: counts signals, under the names that the registry has for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, generate_latest, start_http_server

from grns.errors import UnavailableError
from grns.telemetry import metrics
from grns.telemetry import service_signals as service
from grns.telemetry import task_signals as task
from grns.telemetry.collectors import CounterSeries, GaugeSeries, HistogramSeries
from grns.telemetry.metric import Metric, MetricKind
from grns.telemetry.signal import Signal

_ALL_TASK_TYPES = "*"

Series = TypeVar("Series", CounterSeries, GaugeSeries, HistogramSeries)
# What a process does with a signal; each takes the one kind that it is registered for.
Counters = dict[type[Signal], Callable[[Any], None]]


class MetricsListener:
    """Counts signals, in a registry of its own: a process may have several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counts = self._open(MetricKind.COUNTER, CounterSeries)
        self._times = self._open(MetricKind.HISTOGRAM, HistogramSeries)
        self._gauges = self._open(MetricKind.GAUGE, GaugeSeries)
        self._by_name = {metric.name: series for metric, series in self._gauges.items()}
        # Looked up once: these are used for each task.
        self._claims, self._queue_wait = self._counts[metrics.CLAIMS], self._times[metrics.QUEUE_WAIT]
        self._attempts = self._counts[metrics.ATTEMPTS]
        self._run, self._task = self._times[metrics.RUN], self._times[metrics.TASK]
        self._counters: Counters = self._task_counters() | self._broker_counters() | self._service_counters()
        self._set(metrics.BUILD, 1, version("grns"))

    def receive(self, signal: Signal) -> None:
        """Count one signal."""
        counter = self._counters.get(type(signal))
        if counter is not None:
            counter(signal)

    def exposition(self) -> bytes:
        """Return all metrics, as Prometheus reads them."""
        return generate_latest(self.registry)

    def _open(self, kind: MetricKind, series: type[Series]) -> dict[Metric, Series]:
        opened = {metric: series(metric) for metric in metrics.METRICS if metric.kind is kind}
        for each in opened.values():
            self.registry.register(each)
        return opened

    def _task_counters(self) -> Counters:
        count = self._count
        return {
            task.AttemptStarted: self._claimed,
            task.TaskNotClaimed: lambda signal: count(metrics.CLAIM_CONFLICTS, signal.reason),
            task.AttemptFinished: self._finished,
            task.OutputDropped: lambda signal: count(metrics.OUTPUT_DROPPED, number=signal.chunks),
            task.LeaseLost: lambda signal: count(metrics.LEASES_LOST, signal.reason),
            task.RenewalsUnanswered: lambda signal: count(metrics.RENEW_FAILURES, number=signal.times),
            task.DeliveryDeferred: lambda signal: count(metrics.DEFERRED, signal.reason),
            task.TasksPolled: lambda signal: count(metrics.POLL_CLAIMS, number=signal.tasks),
            task.WorkerPaused: lambda signal: self._paused(signal, 1),
            task.WorkerResumed: lambda signal: self._paused(signal, 0),
        }

    def _broker_counters(self) -> Counters:
        count = self._count
        return {
            task.CommandHandled: lambda signal: count(
                metrics.NATS_REQUESTS, signal.kind, signal.way, signal.answer
            ),
            service.JetStreamOutOfRoom: lambda _: count(metrics.OUT_OF_ROOM),
            task.RejectedMessageStored: lambda signal: count(metrics.REJECTED, signal.reason),
            service.MessagesPublished: lambda signal: count(
                metrics.PUBLISHED, signal.kind, number=signal.messages
            ),
            service.MessageRefused: lambda signal: count(metrics.REFUSED, signal.kind, signal.code),
            service.RelayProgressed: self._progressed,
            service.RelayStandby: self._became_standby,
            service.BrokerLost: lambda _: count(metrics.BROKER_LOSSES),
            service.RequestAnswered: self._answered,
        }

    def _service_counters(self) -> Counters:
        count = self._count
        return {
            task.TaskReaped: self._reaped,
            task.AttemptOverdue: lambda _: count(metrics.ATTEMPTS_OVERDUE),
            task.AttemptStalled: lambda _: count(metrics.ATTEMPTS_STALLED),
            service.TasksPromoted: lambda signal: count(metrics.PROMOTIONS, number=signal.tasks),
            service.TasksAdmitted: lambda signal: count(metrics.ADMISSIONS, number=signal.number),
            service.WaitsRepaired: lambda signal: count(metrics.WAITS_REPAIRED, number=signal.number),
            service.SchedulesDecided: self._decided,
            service.MessagesExpired: lambda signal: count(metrics.MESSAGES_EXPIRED, number=signal.messages),
            service.GaugesMeasured: self._measured,
            service.InvariantChecked: lambda signal: self._set(
                metrics.VIOLATIONS, signal.violations, signal.invariant
            ),
            service.LogCounted: self._log_counted,
            service.StatsStandby: lambda _: self._set(metrics.STATS_LAG, 0),
            task.BatchMoved: self._moved,
            service.WebhookDelivered: lambda signal: self._attempted("delivered", signal),
            service.WebhookNotDelivered: lambda signal: self._attempted(signal.error, signal),
            service.WebhookDeliveriesMade: lambda signal: self._set(metrics.WEBHOOK_BEHIND, signal.behind),
            service.WebhookDisabled: lambda signal: count(metrics.WEBHOOKS_DISABLED, signal.reason),
            service.PostgresFailedOver: lambda _: count(metrics.FAILOVERS),
            service.TickFailed: lambda signal: count(metrics.TICK_FAILURES, signal.service),
            service.ChoresFailed: self._chores_failed,
        }

    def _count(self, metric: Metric, *labels: str, number: int = 1) -> None:
        self._counts[metric].add(*labels, number=number)

    def _set(self, metric: Metric, value: float, *labels: str) -> None:
        self._gauges[metric].set(value, *labels)

    def _chores_failed(self, signal: service.ChoresFailed) -> None:
        for chore in signal.chores:
            self._count(metrics.TICK_FAILURES, f"janitor_{chore}")

    def _decided(self, signal: service.SchedulesDecided) -> None:
        for outcome, number in signal.outcomes.items():
            self._count(metrics.SCHEDULE_DECISIONS, outcome, number=number)

    def _claimed(self, signal: task.AttemptStarted) -> None:
        self._claims.add(signal.task_type, signal.source)
        self._queue_wait.observe(signal.task_type, signal.queued_seconds)

    def _finished(self, signal: task.AttemptFinished) -> None:
        self._attempts.add(signal.task_type, signal.status)
        self._run.observe(signal.task_type, signal.run_seconds)
        if signal.status == "retry_wait":
            self._count(metrics.RETRIES, signal.error_class or "unknown")
        elif signal.total_seconds is not None:
            self._task.observe(signal.task_type, signal.total_seconds)
        if signal.status in ("dead", "failed"):
            self._count(metrics.DEAD_LETTERS, signal.status)

    def _reaped(self, signal: task.TaskReaped) -> None:
        self._count(metrics.LEASE_EXPIRATIONS, signal.status)
        if signal.status == "dead":
            self._count(metrics.DEAD_LETTERS, signal.status)

    def _paused(self, signal: task.WorkerPaused | task.WorkerResumed, value: int) -> None:
        self._set(metrics.POOL_PAUSED, value, signal.agent_type, signal.task_type or _ALL_TASK_TYPES)

    def _progressed(self, signal: service.RelayProgressed) -> None:
        self._set(metrics.RELAY_LAG, signal.lag_seconds)
        self._set(metrics.RELAY_IN_FLIGHT, signal.in_flight)
        self._set(metrics.RELAY_MISSING, signal.missing)

    def _became_standby(self, _signal: service.RelayStandby) -> None:
        """Reset the gauges that only a leader sets."""
        for metric in (metrics.RELAY_LAG, metrics.RELAY_IN_FLIGHT, metrics.RELAY_MISSING):
            self._set(metric, 0)

    def _log_counted(self, signal: service.LogCounted) -> None:
        self._count(metrics.LOG_ROWS_COUNTED, number=signal.rows)
        self._set(metrics.STATS_LAG, signal.age_seconds)

    def _measured(self, signal: service.GaugesMeasured) -> None:
        self._by_name[signal.metric].replace(signal.readings)
        self._set(metrics.MEASURED_AT, time.time(), signal.metric)

    def _moved(self, signal: task.BatchMoved) -> None:
        self._count(metrics.OPERATION_TASKS, signal.action, "moved", number=signal.tasks)
        self._count(metrics.OPERATION_TASKS, signal.action, "skipped", number=signal.skipped)

    def _attempted(
        self, outcome: str, signal: service.WebhookDelivered | service.WebhookNotDelivered
    ) -> None:
        self._count(metrics.WEBHOOK_ATTEMPTS, outcome)
        self._times[metrics.WEBHOOK_SECONDS].observe(outcome, signal.seconds)

    def _answered(self, signal: service.RequestAnswered) -> None:
        self._count(metrics.HTTP_REQUESTS, signal.operation, str(signal.status))
        self._times[metrics.HTTP_SECONDS].observe(signal.operation, signal.seconds)


def serve(metrics: MetricsListener, host: str, port: int) -> Callable[[], None]:
    """Serve the metrics over HTTP and return a function that stops the server.

    Raises:
        UnavailableError: The port is taken.
    """
    try:
        server, thread = start_http_server(port, addr=host, registry=metrics.registry)
    except OSError as error:
        raise UnavailableError(f"metrics cannot be served on {host}:{port}: {error.strerror}") from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
