"""How fast things go: from what was counted in each minute, looked at again and again, to rates."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

COUNTED = (
    "submitted", "claimed", "succeeded", "failed", "dead", "cancelled", "retried", "expired", "released",
    "redriven",
)  # fmt: skip
_SUMS = (*COUNTED, "queue_count", "queue_ms_sum", "run_count", "run_ms_sum")
_MINUTE = timedelta(minutes=1)
_WINDOW_SECONDS = 10.0


class FollowRate:
    """Takes in looks at the minutes. Before there are two, rates are those of the last whole minute."""

    def __init__(self) -> None:
        self._minutes: dict[datetime, Mapping[str, Any]] = {}
        self._looks: deque[tuple[datetime, dict[str, int]]] = deque()

    @staticmethod
    def since(now: datetime) -> datetime:
        """Return from when on the minutes are to be read."""
        return now.replace(second=0, microsecond=0) - 2 * _MINUTE

    def note(self, rows: Sequence[Mapping[str, Any]], now: datetime) -> None:
        """Take in the minutes as they are now."""
        self._minutes |= {row["at"]: row for row in rows}
        total = {name: sum(int(row[name]) for row in self._minutes.values()) for name in _SUMS}
        self._looks.append((now, total))
        while len(self._looks) > 2 and (now - self._looks[1][0]).total_seconds() >= _WINDOW_SECONDS:
            self._looks.popleft()

    def rates(self) -> dict[str, float]:
        """Return how many of each there are in a second."""
        seconds, counts = self._stretch()
        return {name: counts[name] / seconds for name in COUNTED}

    def means(self) -> dict[str, float | None]:
        """Return how long tasks wait in the queue and run, in seconds; None where none did."""
        _, counts = self._stretch()
        return {
            "queue_seconds": _mean(counts["queue_ms_sum"], counts["queue_count"]),
            "run_seconds": _mean(counts["run_ms_sum"], counts["run_count"]),
        }

    def _stretch(self) -> tuple[float, dict[str, int]]:
        """Return what was counted lately, and in how many seconds."""
        if not self._looks:
            return 60.0, dict.fromkeys(_SUMS, 0)
        (first_at, first), (last_at, last) = self._looks[0], self._looks[-1]
        seconds = (last_at - first_at).total_seconds()
        if seconds > 0:
            return seconds, {name: last[name] - first[name] for name in _SUMS}
        minute = self._minutes.get(last_at.replace(second=0, microsecond=0) - _MINUTE, {})
        return 60.0, {name: int(minute.get(name, 0)) for name in _SUMS}


def _mean(milliseconds: int, count: int) -> float | None:
    return milliseconds / count / 1000 if count else None
