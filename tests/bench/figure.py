"""What was measured: figures by name, each with its unit and one sample for each round."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

TASKS, MESSAGES, STATEMENTS = "tasks/s", "messages/s", "statements/s"
MILLISECONDS, MICROSECONDS, MEGABYTES = "ms", "µs/task", "MB"
COUNT, SHARE, TIMES = "", "share", "times"

Curve = list[tuple[float, float]]


@dataclass
class Figure:
    """One figure, as often as it was measured."""

    unit: str
    samples: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The one that counts."""
        return statistics.median(self.samples)


class Figures:
    """All that a run has measured, the curves that are drawn of it, and what there is to say besides."""

    def __init__(self) -> None:
        self.by_name: dict[str, Figure] = {}
        self.curves: dict[str, Curve] = {}
        self.remarks: list[str] = []

    def note(self, name: str, value: float, unit: str) -> None:
        """Take in what one round has measured."""
        self.by_name.setdefault(name, Figure(unit)).samples.append(value)

    def trace(self, name: str, curve: Sequence[tuple[float, float]]) -> None:
        """Take in a curve; the latest of a name stays."""
        self.curves[name] = list(curve)

    def median(self, name: str) -> float | None:
        """Return a figure, None where it was not measured."""
        figure = self.by_name.get(name)
        return None if figure is None else figure.median

    def ratio(self, name: str, against: str) -> float | None:
        """Return one figure as a multiple of another, None where one of them is missing."""
        value, base = self.median(name), self.median(against)
        return value / base if value is not None and base else None


def said(value: float, unit: str) -> str:
    """Return a figure as people read it."""
    if unit == SHARE:
        return f"{value:.1%}"
    if unit == TIMES:
        return f"{value:.2f} ×"
    number = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2f}"
    return f"{number} {unit}".rstrip()
