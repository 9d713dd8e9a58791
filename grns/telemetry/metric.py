"""Declaration of a metric: its name, kind, labels and bound."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

OTHER = "other"
# With all metrics at their bound a process shows a few ten thousand lines.
_MOST_SERIES = 500
_MOST_AT_ONCE = 64


class MetricKind(StrEnum):
    """How a metric behaves, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Label:
    """One label. `among` has all its values; if it is empty, users choose them."""

    name: str
    among: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)  # a key of dictionaries, compared by identity
class Metric:
    """One metric, declared once.

    `name` is the one that Prometheus shows, with a counter's `_total`; `exported_by` the commands of the
    processes that show it. It has at most `most` series: beyond them the values of open labels become
    `other`, and so does each value that is not `among` those of a closed label. `merge` combines the gauges
    that become one series in this way.
    """

    name: str
    kind: MetricKind
    help: str
    exported_by: str
    labels: tuple[Label, ...] = ()
    most: int = _MOST_SERIES
    bounds: tuple[float, ...] = ()
    merge: Callable[[float, float], float] = operator.add

    @property
    def label_names(self) -> list[str]:
        """The names of its labels, in their order."""
        return [label.name for label in self.labels]

    @property
    def first_series(self) -> Sequence[tuple[str, ...]]:
        """The series that a counter shows from the start, so that its first step is visible as one.

        All that there can be if they are few; none if users choose the values.
        """
        if self.kind is not MetricKind.COUNTER or not all(label.among for label in self.labels):
            return []
        series = list(product(*(label.among for label in self.labels)))
        return series if len(series) <= _MOST_AT_ONCE else []

    def bounded(self, values: Sequence[str], *, is_full: bool) -> tuple[str, ...]:
        """Return the label values of a new series as they are shown."""
        return tuple(
            OTHER if (value not in label.among if label.among else is_full) else value
            for label, value in zip(self.labels, values, strict=True)
        )
