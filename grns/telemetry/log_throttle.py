"""Log lines of problems that last: written at once, then at growing intervals while the problem lasts."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import dataclass
from typing import Any

import structlog

_FIRST_PAUSE_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 30.0
# Longer than the longest pause between two tries of anything that logs a problem.
_OVER_AFTER_SECONDS = 15.0
_MOST_PROBLEMS = 200


@dataclass(slots=True)
class _Problem:
    logged_at: float
    seen_at: float
    pause_seconds: float = _FIRST_PAUSE_SECONDS
    suppressed: int = 0


class LogThrottle:
    """A structlog processor that drops repeated lines.

    Lines of one event are repeats if their field `_throttle`, which is not logged, is the same. A line
    without that field is never dropped. `suppressed_repeats` counts the lines dropped since the last one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._problems: dict[Hashable, _Problem] = {}

    def __call__(
        self, _logger: Any, _method: str, line: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Return the line to log; raises `DropEvent` if it is not due."""
        problem = line.pop("_throttle", None)
        if problem is not None:
            suppressed = self.due((line["event"], problem))
            if suppressed is None:
                raise structlog.DropEvent
            if suppressed:
                line["suppressed_repeats"] = suppressed
        return line

    def due(self, key: Hashable) -> int | None:
        """Return how many lines were suppressed since the last one; None if the next one is not due."""
        now = self._clock()
        problem = self._problems.get(key)
        if problem is None or now - problem.seen_at > _OVER_AFTER_SECONDS:
            if len(self._problems) >= _MOST_PROBLEMS:
                self._problems.clear()
            self._problems[key] = _Problem(now, now)
            return 0
        problem.seen_at = now
        if now - problem.logged_at < problem.pause_seconds:
            problem.suppressed += 1
            return None
        suppressed, problem.suppressed, problem.logged_at = problem.suppressed, 0, now
        problem.pause_seconds = min(2 * problem.pause_seconds, _LONGEST_PAUSE_SECONDS)
        return suppressed
