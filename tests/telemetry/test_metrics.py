"""The metrics: what is shown is what is declared, whatever happens, and never more than its bound."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from grns.maintenance.audit import INVARIANTS
from grns.operations.model import Action
from grns.postgres.statements import statement
from grns.telemetry import metrics
from grns.telemetry.collectors import CounterSeries, GaugeSeries, HistogramSeries
from grns.telemetry.metric import OTHER, Label, Metric, MetricKind
from grns.telemetry.metrics import METRICS
from grns.telemetry.metrics_listener import MetricsListener
from grns.telemetry.service_signals import (
    GaugesMeasured,
    LogCounted,
    RelayProgressed,
    RelayStandby,
    StatsStandby,
)
from grns.telemetry.task_signals import (
    AttemptFinished,
    AttemptStarted,
    TaskReaped,
    WorkerPaused,
    WorkerResumed,
)
from tests.support.harness import ROOT
from tests.support.metric_samples import shown

BOUNDS = (0.001, 0.25, 1, 7200)
SECONDS = (0.0, 0.001, 0.0011, 0.2, 0.25, 1, 1.5, 7200.0, 9000.0, -0.001)
KINDS = {MetricKind.COUNTER: "Counter", MetricKind.GAUGE: "Gauge", MetricKind.HISTOGRAM: "Histogram"}


def one(
    kind: MetricKind = MetricKind.COUNTER, name: str = "grns_a_total", *labels: str, **more: object
) -> Metric:
    """Return a metric of a test's own."""
    said: dict[str, object] = {"bounds": BOUNDS if kind is MetricKind.HISTOGRAM else (), **more}
    return Metric(name, kind, "What it is.", "worker", tuple(map(Label, labels)), **said)  # type: ignore[arg-type]


def exposed(found: CollectorRegistry) -> str:
    """Return what a scrape gets, without the moments at which the library's own series began."""
    lines = generate_latest(found).decode().splitlines()
    return "\n".join(line for line in lines if not re.match(r"(# \w+ )?\w+_created\b", line))


# ---------------------------------------------------------------- tallies


def test_counter_series_is_exposed_as_by_prometheus_client() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = CounterSeries(one(MetricKind.COUNTER, "grns_a_total", "task_type", "status"))
    ours.register(tally)
    counter = Counter("grns_a", "What it is.", ["task_type", "status"], registry=theirs)
    assert exposed(ours) == exposed(theirs)
    for labels in (("one", "ok"), ("one", "ok"), ("two", 'od"d')):
        tally.add(*labels)
        counter.labels(*labels).inc()
    assert exposed(ours) == exposed(theirs)
    assert ours.get_sample_value("grns_a_total", {"task_type": "one", "status": "ok"}) == 2


def test_histogram_series_is_exposed_as_by_prometheus_client() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = HistogramSeries(one(MetricKind.HISTOGRAM, "grns_b_seconds", "task_type"))
    ours.register(tally)
    histogram = Histogram("grns_b_seconds", "What it is.", ["task_type"], buckets=BOUNDS, registry=theirs)
    assert exposed(ours) == exposed(theirs)
    for seconds in SECONDS:
        for label in ("one", "two"):
            tally.observe(label, seconds)
            histogram.labels(label).observe(seconds)
    assert exposed(ours) == exposed(theirs)


def test_gauge_series_is_exposed_as_by_prometheus_client() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = GaugeSeries(one(MetricKind.GAUGE, "grns_c_seconds", "priority"))
    ours.register(tally)
    gauge = Gauge("grns_c_seconds", "What it is.", ["priority"], registry=theirs)
    assert exposed(ours) == exposed(theirs), "before it is set, it shows nothing"
    for lane, value in (("a", 1.5), ("b", 2), ("a", 0)):
        tally.set(value, lane)
        gauge.labels(lane).set(value)
    assert exposed(ours) == exposed(theirs)
    tally.replace([(("b",), 7.0)])
    gauge.remove("a")
    gauge.labels("b").set(7)
    assert exposed(ours) == exposed(theirs), "what is not read any more is gone"


# ---------------------------------------------------------------- bounds


def series_of(tally: CounterSeries | HistogramSeries | GaugeSeries) -> dict[tuple[str, ...], float]:
    """Return the series of a tally; of a histogram how often each was counted."""
    (family,) = tally.collect()
    samples = [sample for sample in family.samples if not sample.name.endswith(("_bucket", "_sum"))]
    return {tuple(sample.labels.values()): sample.value for sample in samples}


def test_metric_at_its_bound_counts_in_series_other() -> None:
    counts = CounterSeries(one(MetricKind.COUNTER, "grns_a_total", "a", "b", most=10))
    times = HistogramSeries(one(MetricKind.HISTOGRAM, "grns_b_seconds", "a", most=10))
    for number in range(30):
        counts.add(str(number), str(number))
        times.observe(str(number), 1.0)
    counts.add("3", "3")
    assert series_of(counts)[(OTHER, OTHER)] == 20
    assert series_of(counts)[("3", "3")] == 2
    assert series_of(times)[(OTHER,)] == 20
    assert len(series_of(counts)) == len(series_of(times)) == 11


@pytest.mark.parametrize(("options", "expected"), [({}, sum(range(10, 20))), ({"merge": max}, 19)])
def test_full_gauge_merges_the_rest_into_one_series(options: dict[str, Any], expected: float) -> None:
    gauge = GaugeSeries(one(MetricKind.GAUGE, "grns_c", "a", most=10, **options))
    gauge.replace([((str(number),), float(number)) for number in range(20)])
    assert len(series_of(gauge)) == 11
    assert series_of(gauge)[(OTHER,)] == expected
    gauge.replace([((str(number),), 1.0) for number in range(100, 105)])
    assert list(series_of(gauge)) == [(str(number),) for number in range(100, 105)], "there is room again"


def test_closed_label_with_unknown_value_shows_other() -> None:
    metric = Metric(
        "grns_a_total", MetricKind.COUNTER, "What.", "worker", (Label("a", ("x", "y")), Label("b", ("1",)))
    )
    tally = CounterSeries(metric)
    assert series_of(tally) == {("x", "1"): 0, ("y", "1"): 0}, "they are there from the beginning"
    tally.add("z", "1")
    assert series_of(tally)[(OTHER, "1")] == 1


def test_retries_with_many_error_classes_are_bounded() -> None:
    listener = MetricsListener()
    for number in range(300):
        name = f"E{number}"
        listener.receive(AttemptFinished("gr-1", "noop", 1, "tr-1", "retry_wait", 0.1, None, name))
    value = listener.registry.get_sample_value
    assert value("grns_retries_total", {"error_class": "E0"}) == 1
    assert value("grns_retries_total", {"error_class": "E299"}) is None
    assert value("grns_retries_total", {"error_class": "other"}) == 100


# ---------------------------------------------------------------- the registry

LABELS_OF_MANY = re.compile(r"(^|_)(id|key|trace|lease|url|host|pid|path|subject|message|task)$")


def test_exposition_has_exactly_the_declared_metrics() -> None:
    families = {family.name: family for family in text_string_to_metric_families(shown().decode())}
    declared = {metric.name.removesuffix("_total"): metric for metric in METRICS}
    assert families.keys() == declared.keys()
    for name, family in families.items():
        metric = declared[name]
        assert (family.type, family.documentation) == (metric.kind.value, metric.help)
        assert family.samples, f"{name} is declared, and nothing tells it"
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.label_names)


def test_metric_names_follow_prometheus_conventions() -> None:
    """As `promtool check metrics` has it, and more: units are base units, nothing is named twice."""
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"grns(_[a-z]+)+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER), metric.name
        assert metric.name.endswith("_seconds") or metric.kind is not MetricKind.HISTOGRAM, metric.name
        assert not re.search(r"_(ms|minutes|hours|kib|mib|percent|count|sum|bucket)(_|$)", metric.name)
        assert metric.help[0].isupper() or metric.help[0].isdigit()
        assert metric.help.endswith(".")


def test_labels_have_no_value_per_task() -> None:
    for metric in METRICS:
        for label in metric.labels:
            assert not LABELS_OF_MANY.search(label.name), f"{metric.name} {label.name}"
        assert metric.most <= 2000
        assert metric.kind is not MetricKind.HISTOGRAM or (metric.most <= 100 and len(metric.labels) == 1)


def test_values_of_closed_labels_are_those_of_the_code() -> None:
    said = set(re.findall(r"then '(\w+)'|else '(\w+)'", statement("explain_unclaimed")))
    reasons = {one or other for one, other in said} | {"agent_full", "stopping"}
    assert set(metrics.CLAIM_CONFLICTS.labels[0].among) == reasons
    assert set(metrics.OPERATION_TASKS.labels[0].among) == set(Action)
    assert len(INVARIANTS) <= metrics.VIOLATIONS.most


def test_metrics_page_lists_the_registry() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(grns_\w+)` \| (\w+) \| (.*?) \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    expected = [
        (
            metric.name,
            metric.kind.value,
            ", ".join(f"`{name}`" for name in metric.label_names) or "–",
            metric.help.removesuffix("."),
            metric.exported_by,
        )
        for metric in METRICS
    ]
    assert rows == expected
    mentioned = set(re.findall(r"\bgrns_[a-z_]+", page))
    suffixed = {f"{m.name}{end}" for m, end in product(METRICS, ("", "_bucket", "_sum", "_count"))}
    assert mentioned <= suffixed


# ---------------------------------------------------------------- what the listener makes of emitted


def test_log_counted_adds_rows_and_sets_lag() -> None:
    listener = MetricsListener()
    for rows, age_seconds in ((7, 1.5), (0, 0.0), (3, 2.5)):
        listener.receive(LogCounted(rows, 99, 0, age_seconds))
    value = listener.registry.get_sample_value
    assert value("grns_log_rows_counted_total") == 10
    assert value("grns_stats_lag_seconds") == 2.5
    listener.receive(StatsStandby("stopped"))
    assert value("grns_stats_lag_seconds") == 0, "it is the next leader's to tell"


def test_attempt_finished_counts_status_durations_and_retries() -> None:
    listener = MetricsListener()
    listener.receive(AttemptStarted("gr-1", "noop", 1, "tr-1", "priority", 0.5))
    for status in ("succeeded", "retry_wait", "dead"):
        listener.receive(AttemptFinished("gr-1", "noop", 1, "tr-1", status, 0.1, 2.0, "ValueError"))
    value = listener.registry.get_sample_value
    assert value("grns_claims_total", {"task_type": "noop", "source": "priority"}) == 1
    assert value("grns_attempts_total", {"task_type": "noop", "status": "dead"}) == 1
    assert value("grns_queue_wait_seconds_sum", {"task_type": "noop"}) == 0.5
    assert value("grns_run_seconds_count", {"task_type": "noop"}) == 3
    assert value("grns_task_seconds_count", {"task_type": "noop"}) == 2, "a retry is no end of the task"
    assert value("grns_retries_total", {"error_class": "ValueError"}) == 1
    assert value("grns_dead_letters_total", {"status": "dead"}) == 1


def test_reaped_dead_task_counts_as_dead_letter() -> None:
    listener = MetricsListener()
    for status in ("queued", "dead"):
        listener.receive(TaskReaped("gr-1", "worker-1", 1, "tr-1", status))
    value = listener.registry.get_sample_value
    assert value("grns_lease_expirations_total", {"status": "queued"}) == 1
    assert value("grns_lease_expirations_total", {"status": "dead"}) == 1
    assert value("grns_dead_letters_total", {"status": "dead"}) == 1


def test_pool_paused_gauge_is_reset_by_resume() -> None:
    listener = MetricsListener()
    for task_type in (None, "noop"):
        listener.receive(WorkerPaused("worker", task_type, "cli:me@here", None, None))
    listener.receive(WorkerResumed("worker", None))
    value = listener.registry.get_sample_value
    pools = {
        name: value("grns_pool_paused", {"agent_type": "worker", "task_type": name}) for name in ("*", "noop")
    }
    assert pools == {"*": 0, "noop": 1}


def test_relay_standby_resets_gauges_of_the_leader() -> None:
    listener = MetricsListener()
    listener.receive(RelayProgressed(100, 7, 3, 12.5))
    value = listener.registry.get_sample_value
    assert value("grns_relay_lag_seconds") == 12.5
    listener.receive(RelayStandby("another relay leads now"))
    assert {value(f"grns_relay_{name}") for name in ("lag_seconds", "in_flight", "missing_rows")} == {0}


def test_measured_gauge_sets_its_timestamp() -> None:
    listener = MetricsListener()
    value = listener.registry.get_sample_value
    name = {"metric": "grns_due_oldest_seconds"}
    assert value("grns_measured_timestamp_seconds", name) is None
    listener.receive(GaugesMeasured("grns_due_oldest_seconds", [((), 3.5)]))
    assert value("grns_due_oldest_seconds") == 3.5
    assert (value("grns_measured_timestamp_seconds", name) or 0) > 1.7e9
