"""The log, page by page, with a place that can be come back to: below it, nothing turns up any more."""

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
_HELD_UP_SECONDS = 10.0


class EventLog:
    """Reads what is wanted of the log, the oldest first, as far as it was settled when it was looked last.

    `behind` is the place up to which all has been read and kept; `first` is where the log begins, and
    `settled` how far it could be told when it was opened.
    """

    def __init__(self, database: Database, wanted: EventQuery) -> None:
        self._database = database
        self._wanted = wanted
        self._bounds: Bounds | None = None
        self._end: int | None = None
        self._seen = 0
        self.behind = 0
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
        """Find the place to begin at: behind a number, at a time, or where the log is settled now.

        Times are turned into places once, so that stretches which follow each other neither overlap nor leave
        anything out: numbers and times have one order, but for a blink.
        """
        bounds = await self._look()
        self.first, self.settled = bounds.first, bounds.settled
        now = await listing.now(self._database)
        if after is not None:
            self.behind = after
        elif is_from_now and since is None:
            self.behind = bounds.settled
        if since is not None:
            begins = await log.first_since(self._database, _moment(since, now), bounds.settled)
            self.behind = max(self.behind, begins - 1)
        self._end = bounds.settled
        if until is not None:
            ends = await log.first_since(self._database, _moment(until, now), bounds.settled)
            self._end = min(bounds.settled, ends - 1)
        self._seen = self.behind

    @property
    def is_at_end(self) -> bool:
        """Say whether all has been read that was settled when it was looked last."""
        return self._end is not None and self.behind >= self._end

    def look_again(self) -> None:
        """Have the next page be of what is settled by then."""
        self._bounds, self._end = None, None

    async def page(self) -> Sequence[Mapping[str, Any]]:
        """Return some of what is wanted; `keep` says that it is done with."""
        bounds = await self._look()
        if self._end is None:
            self._end = bounds.settled
        found, self._seen = await event.read_events(
            self._database,
            self._wanted,
            Bounds(bounds.first, self._end),
            behind=self.behind,
            limit=_PAGE,
        )
        return found

    def keep(self) -> None:
        """Go on behind the latest page."""
        self.behind = self._seen

    async def held_up(self) -> str | None:
        """Return what keeps the end of the log from being told; None where nothing does."""
        pulse = await read_pulse(self._database)
        seconds = min(pulse.lag_seconds, pulse.uncounted_seconds)
        if seconds < _HELD_UP_SECONDS:
            return None
        return (
            f"the end of the log is not told yet: for {seconds:.0f} s neither a relay nor a counter has got"
            " past some row of it"
        )

    async def _look(self) -> Bounds:
        if self._bounds is None:
            self._bounds = await event.bounds(self._database)
        return self._bounds


def _moment(said: float | datetime, now: datetime) -> datetime:
    """Return a time; seconds are so long ago."""
    return now - timedelta(seconds=said) if isinstance(said, float) else said
