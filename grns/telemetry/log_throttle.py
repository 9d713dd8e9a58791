"""Troubles that last: told at once, and then at growing intervals for as long as they do."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

_FIRST_PAUSE_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 30.0
# Longer than any of those who tell of a trouble waits before it tries again.
_OVER_AFTER_SECONDS = 15.0
_MOST_TROUBLES = 200


@dataclass(slots=True)
class _Trouble:
    told_at: float
    seen_at: float
    pause_seconds: float = _FIRST_PAUSE_SECONDS
    untold: int = 0


class LogThrottle:
    """Remembers which troubles were told, and when."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._troubles: dict[Hashable, _Trouble] = {}

    def due(self, what: Hashable) -> int | None:
        """Return how often it was kept back since it was last told; None where it is not due now."""
        now = self._clock()
        trouble = self._troubles.get(what)
        if trouble is None or now - trouble.seen_at > _OVER_AFTER_SECONDS:
            self._begin(what, now)
            return 0
        trouble.seen_at = now
        if now - trouble.told_at < trouble.pause_seconds:
            trouble.untold += 1
            return None
        untold, trouble.untold, trouble.told_at = trouble.untold, 0, now
        trouble.pause_seconds = min(2 * trouble.pause_seconds, _LONGEST_PAUSE_SECONDS)
        return untold

    def _begin(self, what: Hashable, now: float) -> None:
        if len(self._troubles) >= _MOST_TROUBLES:
            self._troubles.clear()
        self._troubles[what] = _Trouble(now, now)
