"""Delays between attempts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from math import isfinite, isnan
from typing import Any, Literal

from grns.errors import InvalidInputError, OverBudgetError, Snooze

JITTER = (0.8, 1.2)
MAX_BACKOFF_SECONDS = 366 * 24 * 3600.0
_MAX_DOUBLINGS = 30
_OVER_BUDGET_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays between the attempts of a task.

    Args:
        base_seconds: delay after the first attempt.
        max_seconds: maximum delay, before the jitter of ±20 %.
        curve: `exponential` (base · 2^(attempts − 1)), `polynomial` (base · attempts²), or a function from
            the number of counted attempts (1, 2, …) to seconds.

    Raises:
        InvalidInputError: `bad_backoff` names the wrong argument.

    Example:
        @pool.task("fetch_page", backoff=grns.Backoff(base_seconds=1, max_seconds=60))
        async def fetch_page(ctx: grns.Context, page: Page) -> dict: ...
    """

    base_seconds: float = 5.0
    max_seconds: float = 900.0
    curve: Literal["exponential", "polynomial"] | Callable[[int], float] = "exponential"

    def __post_init__(self) -> None:
        """Refuse what would make each delay fail."""
        for name in ("base_seconds", "max_seconds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise InvalidInputError("bad_backoff", f"{name} must be a number of seconds, not {value!r}")
        if not callable(self.curve) and self.curve not in ("exponential", "polynomial"):
            raise InvalidInputError(
                "bad_backoff", f"curve must be exponential, polynomial or a function, not {self.curve!r}"
            )

    def delay_seconds(self, attempts: int, random: float) -> float:
        """Return the delay after `attempts` counted attempts; `random` is in [0, 1).

        Raises:
            ValueError: the function returned NaN.
        """
        low, high = JITTER
        raw = self._raw_seconds(max(attempts, 1))
        if isnan(raw):
            raise ValueError("a backoff function returned NaN")
        delay = min(raw, self.max_seconds)
        return min(max(delay, 0.0) * (low + (high - low) * random), MAX_BACKOFF_SECONDS)

    def _raw_seconds(self, attempts: int) -> float:
        if callable(self.curve):
            return float(self.curve(attempts))
        if self.curve == "polynomial":
            return self.base_seconds * attempts**2
        return self.base_seconds * 2.0 ** min(attempts - 1, _MAX_DOUBLINGS)


def asked_seconds(after: Any) -> float | None:
    """Return a delay that a caller named, in seconds; None if it is not a usable number."""
    if isinstance(after, timedelta):
        after = after.total_seconds()
    try:
        seconds = float(after)
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), MAX_BACKOFF_SECONDS) if isfinite(seconds) else None


def put_off_seconds(error: BaseException | None) -> float | None:
    """Return for how long an error puts a task off, without counting the attempt; None: it does not.

    So does a submission that a budget refuses: to fail would use up the attempts before more is allowed.
    """
    if isinstance(error, Snooze):
        return asked_seconds(error.after)
    return _OVER_BUDGET_SECONDS if isinstance(error, OverBudgetError) else None
