"""Durations as users write them: a number and its unit (`90`, `90s`, `1.5h`)."""

from __future__ import annotations

import re

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)
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
