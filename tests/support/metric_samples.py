"""One of each signal that is counted: shown on stdout as a scrape has it, for `promtool check metrics`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from grns.telemetry.metric import MetricKind
from grns.telemetry.metrics import METRICS
from grns.telemetry.metrics_listener import MetricsListener
from grns.telemetry.service_signals import (
    BrokerLost,
    ChoresFailed,
    GaugesMeasured,
    InvariantChecked,
    LogCounted,
    MessageRefused,
    MessagesPublished,
    PostgresFailedOver,
    RelayProgressed,
    RequestAnswered,
    TasksPromoted,
    TickFailed,
    WebhookDelivered,
    WebhookDeliveriesMade,
    WebhookDisabled,
)
from grns.telemetry.signal import Signal
from grns.telemetry.task_signals import (
    AttemptFinished,
    AttemptStarted,
    BatchMoved,
    CommandHandled,
    DeliveryDeferred,
    LeaseLost,
    RejectedMessageStored,
    RenewalsUnanswered,
    TaskNotClaimed,
    TaskReaped,
    TasksPolled,
    WorkerPaused,
)

EVERYTHING: Sequence[Signal] = (
    AttemptStarted("gr-1", "noop", 1, "tr-1", "priority", 0.5),
    TaskNotClaimed("gr-1", "lost_race"),
    AttemptFinished("gr-1", "noop", 1, "tr-1", "retry_wait", 0.1, None, "ValueError"),
    AttemptFinished("gr-1", "noop", 1, "tr-1", "dead", 0.1, 2.0, "ValueError"),
    LeaseLost("gr-1", 1, "tr-1", "lost"),
    RenewalsUnanswered(2),
    DeliveryDeferred("gr-1", "UnavailableError", "", 1.0),
    TasksPolled(3),
    WorkerPaused("worker", None, "me", None, None),
    CommandHandled("cmd.task.submit", "request", "created", None, None),
    RejectedMessageStored("bad_json", "cmd.task.execute.v1", 1, ""),
    MessagesPublished("evt.task.queued", 7),
    MessageRefused("evt.task.queued", 1, "full"),
    RelayProgressed(1, 2, 3, 4.0),
    BrokerLost("", 1),
    RequestAnswered("create_task", "POST", 201, 0.01),
    TaskReaped("gr-1", "worker-1", 1, "tr-1", "dead"),
    TasksPromoted(4),
    InvariantChecked("order", 0),
    LogCounted(5, 5, 0, 0.1),
    BatchMoved(1, "redrive", 5, 1),
    WebhookDeliveriesMade(3, 9, 1, 0.5),
    WebhookDelivered("wh-1", 7, "evt.task.dead", 1, 0.2),
    WebhookDisabled("wh-1", "gone"),
    PostgresFailedOver(1, 1, 2, True, "", ""),
    TickFailed("relay", ""),
    ChoresFailed("", ["states"]),
    *(
        GaugesMeasured(metric.name, [(tuple("abc"[: len(metric.labels)]), 1.0)])
        for metric in METRICS
        if metric.kind is MetricKind.GAUGE and metric.exported_by == "janitor"
    ),
)


def shown() -> bytes:
    """Return what a process shows to which each of these has happened."""
    listener = MetricsListener()
    for signal in EVERYTHING:
        listener.receive(signal)
    return listener.exposition()


if __name__ == "__main__":
    sys.stdout.buffer.write(shown())
