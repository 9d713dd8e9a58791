"""Values that attempts report, as they are kept."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

from grns.errors import InvalidInputError
from grns.model.duration import LONGEST_WAIT_SECONDS
from grns.model.failure import clean

LONGEST_STEP = 255


def percent_of(value: Any) -> float | None:
    """Return a percentage from 0 to 100; None for none. Raises InvalidInputError if it is no number."""
    return _bounded(value, 100.0, "progress is a number from 0 to 100")


def step_of(value: Any) -> str | None:
    """Return the name of what is done now. Raises InvalidInputError if it is no text."""
    if value is not None and not isinstance(value, str):
        raise InvalidInputError("bad_handler", f"the step of a progress is text, not {value!r}")
    return None if value is None else clean(value)[:LONGEST_STEP]


def remaining_of(value: Any) -> float | None:
    """Return how long it will still take, in seconds; what is over is 0. Raises InvalidInputError."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    return _bounded(value, LONGEST_WAIT_SECONDS, "remaining is a number of seconds or a timedelta")


def _bounded(value: Any, most: float, what: str) -> float | None:
    """Return a number from 0 to `most`; None for none, or what is unknown."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (Real, Decimal)):
        raise InvalidInputError("bad_handler", f"{what}, not {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if str(value)[0] != "-" else 0.0
    return None if math.isnan(number) else min(max(number, 0.0), most)
