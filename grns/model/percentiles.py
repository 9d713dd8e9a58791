"""Many durations, told by two of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Percentiles:
    """The middle and the edge of some durations, in seconds."""

    p50: float
    p99: float


def spread(seconds: Iterable[float]) -> Percentiles:
    """Return the 50th and the 99th percentile, nearest rank."""
    ordered = sorted(seconds) or [0.0]
    last = len(ordered) - 1
    return Percentiles(ordered[round(last * 0.5)], ordered[round(last * 0.99)])
