"""One of each fact that is counted: shown on stdout as a scrape has it, for `promtool check metrics`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from grns.telemetry.fact import Fact
from grns.telemetry.facts import bus, http, operation, process, relay, upkeep, webhook, work
from grns.telemetry.facts import request as order
from grns.telemetry.metric import MetricKind
from grns.telemetry.metrics import MetricsLeaf
from grns.telemetry.registry import METRICS

EVERYTHING: Sequence[Fact] = (
    work.AttemptStarted("gr-1", "noop", 1, "tr-1", "priority", 0.5),
    work.TaskNotClaimed("gr-1", "lost_race"),
    work.AttemptFinished("gr-1", "noop", 1, "tr-1", "retry_wait", 0.1, None, "ValueError"),
    work.AttemptFinished("gr-1", "noop", 1, "tr-1", "dead", 0.1, 2.0, "ValueError"),
    work.LeaseLost("gr-1", 1, "tr-1", "lost"),
    work.RenewalsUnanswered(2),
    work.DeliveryDeferred("gr-1", "UnavailableError", "", 1.0),
    work.PollClaimed(3),
    work.WorkerPaused("worker", None, "me", None, None),
    order.CommandHandled("cmd.task.submit", "request", "created", None, None),
    bus.RejectedMessageStored("bad_json", "cmd.task.execute.v1", 1, ""),
    relay.MessagesPublished("evt.task.queued", 7),
    relay.MessageRefused("evt.task.queued", 1, "full"),
    relay.RelayProgressed(1, 2, 3, 4.0),
    relay.BrokerLost("", 1),
    http.RequestAnswered("create_task", "POST", 201, 0.01),
    upkeep.TasksReaped("gr-1", "worker-1", 1, "tr-1", "dead"),
    upkeep.TasksPromoted(4),
    upkeep.InvariantChecked("order", 0),
    upkeep.LogCounted(5, 5, 0, 0.1),
    operation.BatchMoved(1, "redrive", 5, 1),
    webhook.DeliveriesMade(3, 9, 1, 0.5),
    webhook.Delivered("wh-1", 7, "evt.task.dead", 1, 0.2),
    webhook.WebhookDisabled("wh-1", "gone"),
    process.PostgresFailedOver(1, 1, 2, True, "", ""),
    process.TickFailed("relay", ""),
    process.ChoresFailed("", ["states"]),
    *(
        upkeep.Measured(metric.name, [(tuple("abc"[: len(metric.labels)]), 1.0)])
        for metric in METRICS
        if metric.kind is MetricKind.GAUGE and metric.told_by == "janitor"
    ),
)


def shown() -> bytes:
    """Return what a process shows to which each of these has happened."""
    leaf = MetricsLeaf()
    for fact in EVERYTHING:
        leaf.read(fact)
    return leaf.exposition()


if __name__ == "__main__":
    sys.stdout.buffer.write(shown())
