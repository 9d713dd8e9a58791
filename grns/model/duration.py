"""Durations: as users write them (`90`, `90s`, `1.5h`), and many of them summed up by percentiles."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from grns.errors import InvalidInputError

LONGEST_WAIT_SECONDS = 366 * 86_400.0
_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)
_LARGEST_FIRST = (("d", 86_400), ("h", 3600), ("m", 60))


def parse(text: str) -> float | None:
    """Return the seconds of a duration; None if the text is not one."""
    found = _DURATION.fullmatch(text)
    if found is None or found[2] not in _UNITS:
        return None
    return float(found[1]) * _UNITS[found[2]]


def seconds_of(value: Any) -> float | None:
    """Return the seconds of a number of seconds or a `timedelta`; None if the value is neither."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    try:
        return value if type(value) in (int, float) and math.isfinite(value) else None
    except OverflowError:
        return None


def seconds_named(name: str, value: Any, *, code: str) -> float | None:
    """Return the seconds of an argument, None for None. Raises InvalidInputError if it is no duration."""
    seconds = None if value is None else seconds_of(value)
    if seconds is None and value is not None:
        raise InvalidInputError(code, f"{name}: pass seconds or a timedelta, not {value!r}")
    return seconds


def written(seconds: int) -> str:
    """Return whole seconds in the largest unit that divides them: `2h`, `90m`, `45s`."""
    for unit, size in _LARGEST_FIRST:
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


@dataclass(frozen=True, slots=True)
class Percentiles:
    """The 50th and the 99th percentile of durations, in seconds."""

    p50: float
    p99: float


def percentiles(seconds: Iterable[float]) -> Percentiles:
    """Return the percentiles by nearest rank; 0 if there are no durations."""
    ordered = sorted(seconds) or [0.0]
    last = len(ordered) - 1
    return Percentiles(ordered[round(last * 0.5)], ordered[round(last * 0.99)])


def bounded_wait(seconds: float) -> float:
    """Return a time to wait: 0 if it is negative, as until a time that has passed.

    Raises InvalidInputError (`bad_handler`) if it is longer than 366 days.
    """
    if not seconds <= LONGEST_WAIT_SECONDS:
        raise InvalidInputError("bad_handler", f"wait for up to 366 days, not {seconds} s")
    return max(0.0, seconds)
