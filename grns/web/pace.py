"""How long tasks wait and run: quantiles of the latest attempts, as the log tells of them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from grns.web.figure import Quantiles, quantiles

_FRESH_SECONDS = 5.0
LATEST = 300
_MOST_PLACES = 1000

Ask = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the latest attempts waited, and how long those ran that came to their own end."""

    wait: Quantiles | None
    run: Quantiles | None


class Paces:
    """One for all pages of a process: however many look, a workspace is asked as often."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Pace]] = {}

    async def of(self, workspace: str, ask: Ask) -> Pace:
        """Return the pace of a workspace, as it was a moment ago. Who asks may look at its events."""
        seen_at, pace = self._known.get(workspace, (-_FRESH_SECONDS, Pace(None, None)))
        if time.monotonic() - seen_at < _FRESH_SECONDS:
            return pace
        pace = Pace(
            await _quantiles(ask, "evt.task.claimed", "queued_ms"),
            await _quantiles(ask, "evt.task.completed", "duration_ms"),
        )
        if len(self._known) >= _MOST_PLACES:
            self._known.clear()
        self._known[workspace] = (time.monotonic(), pace)
        return pace


async def _quantiles(ask: Ask, kind: str, name: str) -> Quantiles | None:
    page = await ask("/events", kind=kind, limit=LATEST)
    found = (row["payload"].get(name) for row in page["items"])
    return quantiles(milliseconds / 1000 for milliseconds in found if milliseconds is not None)
