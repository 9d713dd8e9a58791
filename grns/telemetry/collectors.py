"""The series of a metric: plain numbers, made into samples when Prometheus asks.

`prometheus_client`'s own objects take a lock for each number, and its histograms search their buckets one by
one: that was a good part of the cost of a short task, and they have no bound. What is exposed is the same,
except for the times at which series began. Only one thread may count; any may collect.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import Metric as Family
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from grns.telemetry.metric import Metric

Labels = tuple[str, ...]


@dataclass(slots=True)
class _Count:
    number: int = 0


@dataclass(slots=True)
class _Durations:
    buckets: list[int]
    total_seconds: float = 0.0


class CounterSeries(Collector):
    """A counter. A metric with closed labels alone shows all its series from the start."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._counts: dict[Labels, _Count] = {labels: _Count() for labels in metric.first_series}

    def add(self, *labels: str, number: int = 1) -> None:
        """Add to one series."""
        count = self._counts.get(labels)
        if count is None:
            kept = self._metric.bounded(labels, is_full=len(self._counts) >= self._metric.most)
            count = self._counts.setdefault(kept, _Count())
        count.number += number

    def collect(self) -> Iterable[Family]:
        """Return the counts."""
        metric = self._metric
        family = CounterMetricFamily(metric.name, metric.help, labels=metric.label_names)
        for labels, count in list(self._counts.items()):
            family.add_metric(labels, count.number)
        return [family]


class HistogramSeries(Collector):
    """A histogram of seconds, with one label."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._bounds = [*metric.bounds, float("inf")]
        self._series: dict[str, _Durations] = {}

    def observe(self, label: str, seconds: float) -> None:
        """Count one duration."""
        series = self._series.get(label)
        if series is None:
            (kept,) = self._metric.bounded((label,), is_full=len(self._series) >= self._metric.most)
            series = self._series.setdefault(kept, _Durations([0] * len(self._bounds)))
        series.buckets[bisect_left(self._bounds, seconds)] += 1
        series.total_seconds += seconds

    def collect(self) -> Iterable[Family]:
        """Return the counts."""
        metric = self._metric
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.label_names)
        bounds = [floatToGoString(bound) for bound in self._bounds]  # type: ignore[no-untyped-call]
        for label, series in list(self._series.items()):
            counts = accumulate(list(series.buckets))
            family.add_metric([label], list(zip(bounds, counts, strict=True)), series.total_seconds)
        return [family]


class GaugeSeries(Collector):
    """A gauge. It shows nothing before it is set: an unknown value is not 0."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._values: dict[Labels, float] = {}

    def set(self, value: float, *labels: str) -> None:
        """Set one series."""
        is_full = labels not in self._values and len(self._values) >= self._metric.most
        self._values[self._metric.bounded(labels, is_full=is_full)] = value

    def replace(self, readings: Iterable[tuple[Sequence[str], float]]) -> None:
        """Set all series; those that are not among the readings are removed.

        Series beyond the bound become one, with the `merge` of the metric.
        """
        metric, values = self._metric, dict[Labels, float]()
        for labels, value in readings:
            kept = metric.bounded(labels, is_full=len(values) >= metric.most)
            values[kept] = metric.merge(values[kept], value) if kept in values else value
        self._values = values

    def collect(self) -> Iterable[Family]:
        """Return the values."""
        metric = self._metric
        family = GaugeMetricFamily(metric.name, metric.help, labels=metric.label_names)
        for labels, value in list(self._values.items()):
            family.add_metric(labels, value)
        return [family]
