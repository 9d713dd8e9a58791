"""Durations as people write them, a number and its unit (`90`, `90s`, `1.5h`), and as they read them."""

from __future__ import annotations

import re

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)
_MANY_HOURS = 72
_LARGEST_FIRST = (("d", 86_400), ("h", 3600), ("m", 60))


def parse(text: str) -> float | None:
    """Return the seconds that a text says, None where it says none."""
    found = _DURATION.fullmatch(text)
    if found is None or found[2] not in _UNITS:
        return None
    return float(found[1]) * _UNITS[found[2]]


def written(seconds: int) -> str:
    """Return whole seconds in the largest unit that leaves no rest: `2h`, `90m`, `45s`."""
    for unit, size in _LARGEST_FIRST:
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def lasted(seconds: float) -> str:
    """Return how long something took, for people: `340 ms`, `12.5 s`, `4 min 10 s`, `3 h 20 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 90:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= _MANY_HOURS:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
