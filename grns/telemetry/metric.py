"""What a metric is, before anything is counted: its name, its kind, its labels, its bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

OTHER = "other"
# More than anybody looks at; with all of them at their bound a process shows a few ten thousand lines.
_MOST_SERIES = 500
_MOST_AT_ONCE = 64


class MetricKind(StrEnum):
    """How a metric behaves, in Prometheus' words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(StrEnum):
    """What a gauge shows for all series together that found no room of their own."""

    SUM = "sum"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Label:
    """One label. `among` has all its values; where it is empty, users name them."""

    name: str
    among: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)  # each is itself alone: it is asked for by identity
class Metric:
    """One metric, declared once.

    `name` is the one that Prometheus shows, with a counter's `_total`; `told_by` the processes that tell it,
    as their commands are called. It has `most` series and no more: beyond them the values of open labels
    become `other`, and so does, at once, what is not `among` the values of a closed one.
    """

    name: str
    kind: MetricKind
    help: str
    told_by: str
    labels: tuple[Label, ...] = ()
    most: int = _MOST_SERIES
    bounds: tuple[float, ...] = ()
    merge: Merge = Merge.SUM

    @property
    def label_names(self) -> list[str]:
        """The names of its labels, in their order."""
        return [label.name for label in self.labels]

    @property
    def first_series(self) -> Sequence[tuple[str, ...]]:
        """Which series a counter shows before anything has happened, so that its first step is one, too.

        They are all that there can be, where these are few; none where users name them.
        """
        if self.kind is not MetricKind.COUNTER or not all(label.among for label in self.labels):
            return []
        series: list[tuple[str, ...]] = [()]
        for label in self.labels:
            series = [(*one, value) for one in series for value in label.among]
        return series if len(series) <= _MOST_AT_ONCE else []

    def bounded(self, values: Sequence[str], *, is_full: bool) -> tuple[str, ...]:
        """Return the values of a new series' labels as they are to be shown."""
        return tuple(
            _bounded(label, value, is_full=is_full) for label, value in zip(self.labels, values, strict=True)
        )


def _bounded(label: Label, value: str, *, is_full: bool) -> str:
    if label.among:
        return value if value in label.among else OTHER
    return OTHER if is_full else value
