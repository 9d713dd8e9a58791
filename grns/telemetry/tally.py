"""Metrics that are counted for each task: plain numbers, made into samples when somebody asks for them.

The library's own take a lock for each number, and a histogram walks through its buckets:
that was a good part of what a short task cost. What is exposed is the same. Only one
thread may count; any may ask.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_INFINITY = float("inf")


@dataclass(slots=True)
class _Count:
    number: int = 0
    created_at: float = field(default_factory=time.time)


@dataclass(slots=True)
class _Times:
    buckets: list[int]
    total_seconds: float = 0.0
    created_at: float = field(default_factory=time.time)


class CountTally(Collector):
    """A counter with labels."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str]) -> None:
        self._name, self._documentation, self._labels = name, documentation, labels
        self._counts: dict[tuple[str, ...], _Count] = {}

    def add(self, *labels: str) -> None:
        """Count one."""
        count = self._counts.get(labels)
        if count is None:
            count = self._counts[labels] = _Count()
        count.number += 1

    def collect(self) -> Iterable[Metric]:
        """Return what was counted."""
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for labels, count in list(self._counts.items()):
            family.add_metric(labels, count.number, created=count.created_at)
        return [family]


class TimeTally(Collector):
    """A histogram of seconds, with one label. `bounds` are the upper ones of its buckets, in order."""

    def __init__(self, name: str, documentation: str, label: str, *, bounds: Sequence[float]) -> None:
        self._name, self._documentation, self._label = name, documentation, label
        self._bounds = [*bounds, _INFINITY]
        self._times: dict[str, _Times] = {}

    def observe(self, label: str, seconds: float) -> None:
        """Count one duration."""
        times = self._times.get(label)
        if times is None:
            times = self._times[label] = _Times([0] * len(self._bounds))
        times.buckets[bisect_left(self._bounds, seconds)] += 1
        times.total_seconds += seconds

    def collect(self) -> Iterable[Metric]:
        """Return what was counted."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=[self._label])
        bounds = [floatToGoString(bound) for bound in self._bounds]  # type: ignore[no-untyped-call]
        for label, times in list(self._times.items()):
            sums = list(accumulate(list(times.buckets)))
            family.add_metric([label], list(zip(bounds, sums, strict=True)), times.total_seconds)
            family.add_sample(f"{self._name}_created", {self._label: label}, times.created_at)
        return [family]
