"""What was counted: plain numbers, made into samples when somebody asks for them.

The library's own take a lock for each number, and a histogram walks through its buckets:
that was a good part of what a short task cost. What is exposed is the same, but for the
moments at which the series began, which Prometheus does not read. Only one thread may
count; any may ask.
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

from grns.telemetry.metric import Merge, Metric

_INFINITY = float("inf")

Labels = tuple[str, ...]


@dataclass(slots=True)
class _Count:
    number: int = 0


@dataclass(slots=True)
class _Times:
    buckets: list[int]
    total_seconds: float = 0.0


class CounterSeries(Collector):
    """A counter. Where its metric says which series there can be, they are there from the beginning."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._counts: dict[Labels, _Count] = {labels: _Count() for labels in metric.first_series}

    def add(self, *labels: str, number: int = 1) -> None:
        """Count one, or so many."""
        count = self._counts.get(labels)
        if count is None:
            kept = self._metric.bounded(labels, is_full=len(self._counts) >= self._metric.most)
            count = self._counts.setdefault(kept, _Count())
        count.number += number

    def collect(self) -> Iterable[Family]:
        """Return what was counted."""
        metric = self._metric
        family = CounterMetricFamily(metric.name, metric.help, labels=metric.label_names)
        for labels, count in list(self._counts.items()):
            family.add_metric(labels, count.number)
        return [family]


class HistogramSeries(Collector):
    """A histogram of seconds, with one label."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._bounds = [*metric.bounds, _INFINITY]
        self._times: dict[str, _Times] = {}

    def observe(self, label: str, seconds: float) -> None:
        """Count one duration."""
        times = self._times.get(label)
        if times is None:
            (kept,) = self._metric.bounded((label,), is_full=len(self._times) >= self._metric.most)
            times = self._times.setdefault(kept, _Times([0] * len(self._bounds)))
        times.buckets[bisect_left(self._bounds, seconds)] += 1
        times.total_seconds += seconds

    def collect(self) -> Iterable[Family]:
        """Return what was counted."""
        metric = self._metric
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.label_names)
        bounds = [floatToGoString(bound) for bound in self._bounds]  # type: ignore[no-untyped-call]
        for label, times in list(self._times.items()):
            sums = list(accumulate(list(times.buckets)))
            family.add_metric([label], list(zip(bounds, sums, strict=True)), times.total_seconds)
        return [family]


class GaugeSeries(Collector):
    """A gauge. Nothing is shown before it has been set: what nobody knows is not 0."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._values: dict[Labels, float] = {}

    def set(self, value: float, *labels: str) -> None:
        """Set one series."""
        is_full = labels not in self._values and len(self._values) >= self._metric.most
        self._values[self._metric.bounded(labels, is_full=is_full)] = value

    def replace(self, readings: Iterable[tuple[Sequence[str], float]]) -> None:
        """Set all series anew: one that is not among the readings is gone.

        Those that find no room of their own are shown as one, their sum or the highest, as the metric says.
        """
        metric, values = self._metric, dict[Labels, float]()
        for labels, value in readings:
            kept = metric.bounded(labels, is_full=len(values) >= metric.most)
            if kept not in values:
                values[kept] = value
            elif metric.merge is Merge.MAX:
                values[kept] = max(values[kept], value)
            else:
                values[kept] += value
        self._values = values

    def collect(self) -> Iterable[Family]:
        """Return the values."""
        metric = self._metric
        family = GaugeMetricFamily(metric.name, metric.help, labels=metric.label_names)
        for labels, value in list(self._values.items()):
            family.add_metric(labels, value)
        return [family]
