"""The event log page by page, with a number to continue from: nothing appears below it later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from grns.dead_letters import listing
from grns.diagnose.daemons import read_pulse
from grns.outbox import events as event
from grns.outbox import log
from grns.outbox.events import Bounds, EventQuery
from grns.postgres.database import Database

_PAGE = 500
_DELAY_SECONDS = 10.0


class EventLog:
    """Reads the events of a query, the oldest first, up to the high-water mark.

    `after` is the number up to which everything was read and kept, `first` is where the log begins, and
    `settled` is the high-water mark when it was opened.
    """

    def __init__(self, database: Database, query: EventQuery) -> None:
        self._database = database
        self._query = query
        self._bounds: Bounds | None = None
        self._end: int | None = None
        self._seen = 0
        self.after = 0
        self.first = 1
        self.settled = 0

    async def open(
        self,
        *,
        after: int | None,
        since: float | datetime | None,
        until: float | datetime | None,
        is_from_now: bool,
    ) -> None:
        """Find the number to begin after: a number, a time, or the high-water mark.

        Times are converted to numbers once, so that ranges which follow each other neither overlap nor leave
        anything out: numbers and times have the same order, except within milliseconds.
        """
        bounds = await self._read_bounds()
        self.first, self.settled = bounds.first, bounds.settled
        now = await listing.now(self._database)
        if after is not None:
            self.after = after
        elif is_from_now and since is None:
            self.after = bounds.settled
        if since is not None:
            begins = await log.first_since(self._database, _time(since, now), bounds.settled)
            self.after = max(self.after, begins - 1)
        self._end = bounds.settled
        if until is not None:
            ends = await log.first_since(self._database, _time(until, now), bounds.settled)
            self._end = min(bounds.settled, ends - 1)
        self._seen = self.after

    @property
    def is_at_end(self) -> bool:
        """Whether everything up to the last known high-water mark has been read."""
        return self._end is not None and self.after >= self._end

    def refresh(self) -> None:
        """Let the next page read the high-water mark again."""
        self._bounds, self._end = None, None

    async def page(self) -> Sequence[Mapping[str, Any]]:
        """Return the next events. Call `keep` when they are done with."""
        bounds = await self._read_bounds()
        if self._end is None:
            self._end = bounds.settled
        rows, self._seen = await event.read_events(
            self._database,
            self._query,
            Bounds(bounds.first, self._end),
            behind=self.after,
            limit=_PAGE,
        )
        return rows

    def keep(self) -> None:
        """Continue after the latest page."""
        self.after = self._seen

    async def delay_reason(self) -> str | None:
        """Return why the end of the log cannot be read yet; None if it can."""
        pulse = await read_pulse(self._database)
        seconds = min(pulse.lag_seconds, pulse.uncounted_seconds)
        if seconds < _DELAY_SECONDS:
            return None
        return (
            f"the end of the log is missing: for {seconds:.0f} s neither a relay nor a stats aggregator has"
            " passed some row of it"
        )

    async def _read_bounds(self) -> Bounds:
        if self._bounds is None:
            self._bounds = await event.bounds(self._database)
        return self._bounds


def _time(given: float | datetime, now: datetime) -> datetime:
    """Return a time; a number means seconds before now."""
    return now - timedelta(seconds=given) if isinstance(given, float) else given
