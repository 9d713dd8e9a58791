"""Figures: small drawings, shares, and series for charts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grns.web.formatting import Exact, instant

_BAR, _GAP, _HEIGHT = 4, 1, 24
_MINUTE_SECONDS = 60


def bars(numbers: Sequence[int]) -> str:
    """Return the path of a small bar chart, one bar a number; the highest is 24 high."""
    most = max([*numbers, 1])
    return " ".join(
        f"M{place * (_BAR + _GAP)} {_HEIGHT}v{-max(1, round(number * _HEIGHT / most))}h{_BAR}V{_HEIGHT}z"
        for place, number in enumerate(numbers)
        if number
    )


@dataclass(frozen=True, slots=True)
class Quantiles:
    """What half, most and nearly all of some durations do not exceed, in seconds; and how many they are."""

    p50: float
    p95: float
    p99: float
    count: int


def quantiles(seconds: Iterable[float]) -> Quantiles | None:
    """Return the quantiles of some durations, None of none."""
    found = sorted(seconds)
    if not found:
        return None
    p50, p95, p99 = (found[min(len(found) - 1, int(share * len(found)))] for share in (0.5, 0.95, 0.99))
    return Quantiles(p50, p95, p99, len(found))


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time. `points` has the seconds since 1970 first, then the values of each line."""

    title: str
    unit: str
    lines: tuple[str, ...]
    points: list[list[float | None]]

    @property
    def content(self) -> Exact:
        """All of it, for the script that draws it."""
        points = [[value if value is None else round(value, 4) for value in line] for line in self.points]
        said = {"unit": self.unit, "lines": self.lines, "points": points}
        return Exact(json.dumps(said, separators=(",", ":")))

    @property
    def latest(self) -> list[tuple[str, float | None]]:
        """The last value of each line: for who sees no drawing."""
        return [
            (name, values[-1] if values else None)
            for name, values in zip(self.lines, self.points[1:], strict=True)
        ]


def per_second(title: str, steps: Mapping[str, Any], *names: str) -> Chart:
    """Return how many of some things happened in each second, minute by minute."""
    times, rows = _rows(steps)
    seconds = float(steps["step_seconds"])
    values: list[list[float | None]] = [
        [rows.get(at, {}).get(name, 0) / seconds for at in times] for name in names
    ]
    return Chart(title, "1/s", names, [list(times), *values])


def per_minute(title: str, steps: Mapping[str, Any], *names: str) -> Chart:
    """Return how many of some things happened in each minute."""
    times, rows = _rows(steps)
    minutes = steps["step_seconds"] / _MINUTE_SECONDS
    values: list[list[float | None]] = [
        [rows.get(at, {}).get(name, 0) / minutes for at in times] for name in names
    ]
    return Chart(title, "1/min", names, [list(times), *values])


def mean_seconds(title: str, steps: Mapping[str, Any], **names: str) -> Chart:
    """Return means of durations: `wait="queue"` draws `queue_ms_sum` by `queue_count` as `wait`."""
    times, rows = _rows(steps)

    def mean(at: float, name: str) -> float | None:
        row = rows.get(at, {})
        count = row.get(f"{name}_count", 0)
        return row[f"{name}_ms_sum"] / count / 1000 if count else None

    values = [[mean(at, name) for at in times] for name in names.values()]
    return Chart(title, "s", tuple(names), [list(times), *values])


def _rows(steps: Mapping[str, Any]) -> tuple[list[float], dict[float, Mapping[str, Any]]]:
    """Return all times of a stretch, and the rows of those in which something happened."""
    step = int(steps["step_seconds"])
    first = int(instant(steps["since"]).timestamp()) // step * step
    last = int(instant(steps["until"]).timestamp()) // step * step
    rows = {instant(row["at"]).timestamp(): row for row in steps["items"]}
    # The last one goes on still: half of it would look like a fall.
    return [float(at) for at in range(first + step, last, step)], rows
