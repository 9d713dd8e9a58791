"""The metrics: what is tallied per task looks as the library's own metrics would."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from grns.telemetry.facts import relay, upkeep, work
from grns.telemetry.metrics import MetricsLeaf
from grns.telemetry.tally import CountTally, TimeTally

BOUNDS = (0.001, 0.25, 1, 7200)
SECONDS = (0.0, 0.001, 0.0011, 0.2, 0.25, 1, 1.5, 7200.0, 9000.0, -0.001)


def exposed(registry: CollectorRegistry) -> str:
    """Return what a scrape gets, without the moments at which the series began."""
    return re.sub(r"(_created\{.*\}) .*", r"\1 -", generate_latest(registry).decode())


def test_a_tally_of_counts_is_exposed_as_a_counter() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = CountTally("grns_a", "What it is", ["task_type", "status"])
    ours.register(tally)
    counter = Counter("grns_a", "What it is", ["task_type", "status"], registry=theirs)
    assert exposed(ours) == exposed(theirs)
    for labels in (("one", "ok"), ("one", "ok"), ("two", 'od"d')):
        tally.add(*labels)
        counter.labels(*labels).inc()
    assert exposed(ours) == exposed(theirs)
    assert ours.get_sample_value("grns_a_total", {"task_type": "one", "status": "ok"}) == 2


def test_a_tally_of_times_is_exposed_as_a_histogram() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = TimeTally("grns_b_seconds", "What it is", "task_type", bounds=BOUNDS)
    ours.register(tally)
    histogram = Histogram("grns_b_seconds", "What it is", ["task_type"], buckets=BOUNDS, registry=theirs)
    assert exposed(ours) == exposed(theirs)
    for seconds in SECONDS:
        for label in ("one", "two"):
            tally.observe(label, seconds)
            histogram.labels(label).observe(seconds)
    assert exposed(ours) == exposed(theirs)


def test_what_of_the_log_is_counted_is_counted() -> None:
    leaf = MetricsLeaf()
    for rows, age_seconds in ((7, 1.5), (0, 0.0), (3, 2.5)):
        leaf.read(upkeep.LogCounted(rows, 99, 0, age_seconds))
    value = leaf.registry.get_sample_value
    assert value("grns_log_rows_counted_total") == 10
    assert value("grns_counter_lag_seconds") == 2.5
    leaf.read(upkeep.CounterFollows("stopped"))
    assert value("grns_counter_lag_seconds") == 0, "it is the next leader's to tell"


def test_the_end_of_an_attempt_is_counted() -> None:
    leaf = MetricsLeaf()
    leaf.read(work.TaskClaimed("gr-1", "noop", 1, "tr-1", "lane", 0.5))
    for status in ("succeeded", "retry_wait", "dead"):
        leaf.read(work.AttemptFinished("gr-1", "noop", 1, "tr-1", status, 0.1, 2.0, "ValueError"))
    value = leaf.registry.get_sample_value
    assert value("grns_claims_total", {"task_type": "noop", "source": "lane"}) == 1
    assert value("grns_attempts_total", {"task_type": "noop", "status": "dead"}) == 1
    assert value("grns_queue_wait_seconds_sum", {"task_type": "noop"}) == 0.5
    assert value("grns_run_seconds_count", {"task_type": "noop"}) == 3
    assert value("grns_task_seconds_count", {"task_type": "noop"}) == 2, "a retry is no end of the task"
    assert value("grns_retries_total", {"error_class": "ValueError"}) == 1
    assert value("grns_dead_letters_total", {"status": "dead"}) == 1


def test_a_pool_is_shown_as_paused_until_it_is_resumed() -> None:
    leaf = MetricsLeaf()
    for task_type in (None, "noop"):
        leaf.read(work.PoolPaused("worker", task_type, "cli:me@here", None, None))
    leaf.read(work.PoolResumed("worker", None))
    value = leaf.registry.get_sample_value
    shown = {
        name: value("grns_pool_paused", {"agent_type": "worker", "task_type": name}) for name in ("*", "noop")
    }
    assert shown == {"*": 0, "noop": 1}


def test_what_the_lead_told_is_the_next_leaders_to_tell() -> None:
    leaf = MetricsLeaf()
    leaf.read(relay.RelayProgressed(100, 7, 3, 12.5))
    value = leaf.registry.get_sample_value
    assert value("grns_relay_lag_seconds") == 12.5
    leaf.read(relay.RelayFollows("another relay leads now"))
    assert {value(f"grns_relay_{name}") for name in ("lag_seconds", "in_flight", "missing_rows")} == {0}


def test_there_are_only_so_many_series_whatever_handlers_name_their_errors() -> None:
    leaf = MetricsLeaf()
    for number in range(300):
        name = f"E{number}"
        leaf.read(work.AttemptFinished("gr-1", "noop", 1, "tr-1", "retry_wait", 0.1, None, name))
    value = leaf.registry.get_sample_value
    assert value("grns_retries_total", {"error_class": "E0"}) == 1
    assert value("grns_retries_total", {"error_class": "E299"}) is None
    assert value("grns_retries_total", {"error_class": "other"}) == 100
