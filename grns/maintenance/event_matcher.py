"""The event matcher: sends tasks the events that they wait for."""

from __future__ import annotations

from dataclasses import dataclass

from grns.outbox.events import bounds
from grns.postgres.database import Database
from grns.runtime.service import PeriodicService

_ROWS = 10_000


@dataclass(slots=True, kw_only=True, eq=False)
class EventMatcher(PeriodicService):
    """Searches the log behind the last place of each wait; of several matchers, one works at a time."""

    database: Database
    name: str = "event_matcher"
    tick_seconds: float = 0.2
    busy_seconds: float = 0.02
    idle_seconds: float = 1.0

    async def tick(self) -> float:
        """Search the next rows of the log; rarely while no task waits for an event."""
        (row,) = await self.database.run("has_event_waits")
        if not row["has_waits"]:
            return self.idle_seconds
        return self.busy_seconds if await self.search() else self.tick_seconds

    async def search(self) -> bool:
        """Search the next rows, and return whether there are more."""
        log = await bounds(self.database)
        (row,) = await self.database.run("deliver_events", log.settled, _ROWS)
        has_more: bool = row["has_more"]
        return has_more
