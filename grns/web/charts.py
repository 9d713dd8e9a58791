"""Figures of the overview: sparklines, charts, quantiles of durations, and figures from metrics."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grns.web.formatting import Exact, instant

_BAR, _GAP, _HEIGHT = 4, 1, 24
_MINUTE_SECONDS = 60
# Attempts that quantiles are computed from, and for how long the result is kept.
LATEST_ATTEMPTS = 300
_CACHE_SECONDS, _CACHE_WORKSPACES = 5.0, 1000

Fetch = Callable[..., Awaitable[Any]]


def bars(numbers: Sequence[int]) -> str:
    """Return the SVG path of a small bar chart, with one bar per number; the highest is 24 high."""
    highest = max([*numbers, 1])
    return " ".join(
        f"M{place * (_BAR + _GAP)} {_HEIGHT}v{-max(1, round(number * _HEIGHT / highest))}h{_BAR}V{_HEIGHT}z"
        for place, number in enumerate(numbers)
        if number
    )


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time. `points` has seconds since 1970 first, then the values of each line."""

    title: str
    unit: str
    lines: tuple[str, ...]
    points: list[list[float | None]]

    @property
    def content(self) -> Exact:
        """The chart as JSON, for the script that draws it."""
        points = [[value if value is None else round(value, 4) for value in line] for line in self.points]
        chart = {"unit": self.unit, "lines": self.lines, "points": points}
        return Exact(json.dumps(chart, separators=(",", ":")))

    @property
    def latest(self) -> list[tuple[str, float | None]]:
        """The last value of each line, as a legend and for screen readers."""
        return [
            (name, values[-1] if values else None)
            for name, values in zip(self.lines, self.points[1:], strict=True)
        ]


def per_second(title: str, steps: Mapping[str, Any], *names: str) -> Chart:
    """Return a chart of rates per second, minute by minute."""
    return _rates(title, "1/s", steps, names, 1.0)


def per_minute(title: str, steps: Mapping[str, Any], *names: str) -> Chart:
    """Return a chart of rates per minute."""
    return _rates(title, "1/min", steps, names, _MINUTE_SECONDS)


def _rates(title: str, unit: str, steps: Mapping[str, Any], names: tuple[str, ...], seconds: float) -> Chart:
    times, rows = _rows(steps)
    scale = seconds / steps["step_seconds"]
    values: list[list[float | None]] = [
        [rows.get(at, {}).get(name, 0) * scale for at in times] for name in names
    ]
    return Chart(title, unit, names, [list(times), *values])


def mean_seconds(title: str, steps: Mapping[str, Any], **names: str) -> Chart:
    """Return a chart of mean durations: `wait="queue"` draws `queue_ms_sum` / `queue_count` as `wait`."""
    times, rows = _rows(steps)

    def mean(at: float, name: str) -> float | None:
        row = rows.get(at, {})
        count = row.get(f"{name}_count", 0)
        return row[f"{name}_ms_sum"] / count / 1000 if count else None

    values = [[mean(at, name) for at in times] for name in names.values()]
    return Chart(title, "s", tuple(names), [list(times), *values])


def _rows(steps: Mapping[str, Any]) -> tuple[list[float], dict[float, Mapping[str, Any]]]:
    """Return the times of all steps, and the rows of the steps in which something happened."""
    step = int(steps["step_seconds"])
    first = int(instant(steps["since"]).timestamp()) // step * step
    last = int(instant(steps["until"]).timestamp()) // step * step
    rows = {instant(row["at"]).timestamp(): row for row in steps["items"]}
    # The last step is not over: half of it would look like a drop.
    return [float(at) for at in range(first + step, last, step)], rows


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles of durations, in seconds, and how many durations there were."""

    p50: float
    p95: float
    p99: float
    count: int


def quantiles(seconds: Iterable[float]) -> Quantiles | None:
    """Return the quantiles of durations, or None if there are none."""
    ordered = sorted(seconds)
    if not ordered:
        return None
    p50, p95, p99 = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.95, 0.99))
    return Quantiles(p50, p95, p99, len(ordered))


@dataclass(frozen=True, slots=True)
class AttemptDurations:
    """How long the latest attempts waited, and how long those ran that completed."""

    wait: Quantiles | None
    run: Quantiles | None


@dataclass(slots=True)
class AttemptDurationsCache:
    """Attempt durations by workspace, read at most every 5 seconds however many pages show them."""

    _known: dict[str, tuple[float, AttemptDurations]] = field(default_factory=dict)

    async def read(self, workspace: str, fetch: Fetch) -> AttemptDurations:
        """Return the durations of a workspace. The user of `fetch` may read its events."""
        if workspace in self._known:
            read_at, durations = self._known[workspace]
            if time.monotonic() - read_at < _CACHE_SECONDS:
                return durations
        durations = AttemptDurations(
            await _event_quantiles(fetch, "evt.task.claimed", "queued_ms"),
            await _event_quantiles(fetch, "evt.task.completed", "duration_ms"),
        )
        if len(self._known) >= _CACHE_WORKSPACES:
            self._known.clear()
        self._known[workspace] = (time.monotonic(), durations)
        return durations


async def _event_quantiles(fetch: Fetch, kind: str, name: str) -> Quantiles | None:
    page = await fetch("/events", kind=kind, limit=LATEST_ATTEMPTS)
    milliseconds = (row["payload"].get(name) for row in page["items"])
    return quantiles(value / 1000 for value in milliseconds if value is not None)


_SAMPLE = re.compile(r"^(grns_[a-z_]+)(?:\{[^}]*\})? ([0-9.eE+-]+)$", re.MULTILINE)
# Title, metric, and a metric that is above zero if this process sets the first one: an unset gauge is zero.
# The first of two entries with one title wins: the measured value before the daemon's own.
_MEASURED = "grns_measured_timestamp_seconds"
_KEY_FIGURES = (
    ("Relay lag", "grns_unpublished_oldest_seconds", _MEASURED, "s"),
    ("Relay lag", "grns_relay_lag_seconds", "grns_messages_published_total", "s"),
    ("Awaiting the broker", "grns_relay_in_flight", "grns_messages_published_total", ""),
    ("Stats lag", "grns_uncounted_oldest_seconds", _MEASURED, "s"),
    ("Stats lag", "grns_stats_lag_seconds", "grns_log_rows_counted_total", "s"),
    ("Oldest overdue", "grns_due_oldest_seconds", _MEASURED, "s"),
    ("Consumers pending", "grns_consumer_pending_messages", _MEASURED, ""),
)


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """One figure of the daemons in this process."""

    name: str
    value: float
    unit: str


def key_figures(exposition: str) -> list[KeyFigure]:
    """Return the figures that Prometheus metrics contain; samples of one metric are added up."""
    values: dict[str, float] = {}
    for name, value in _SAMPLE.findall(exposition):
        values[name] = values.get(name, 0.0) + float(value)
    figures: dict[str, KeyFigure] = {}
    for title, name, witness, unit in _KEY_FIGURES:
        if name in values and values.get(witness):
            figures.setdefault(title, KeyFigure(title, values[name], unit))
    return list(figures.values())
