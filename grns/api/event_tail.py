"""The log as readers may see it: where it begins, and up to where nothing turns up between any more."""

from __future__ import annotations

import asyncio
import time

from grns.access.limiter import WorkspaceLimiter
from grns.outbox import events as event
from grns.outbox.events import Bounds
from grns.postgres.database import Database

_FRESH_SECONDS = 0.25
_MOST_READERS, _MOST_OF_ONE = 200, 50


class EventTail:
    """One for all readers of a process: however many they are, the log's end is asked for as often."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asking = asyncio.Lock()
        self._bounds = Bounds(1, 0)
        self._seen_at = -_FRESH_SECONDS
        self.readers = WorkspaceLimiter("event streams", most=_MOST_READERS, most_of_one=_MOST_OF_ONE)

    async def bounds(self) -> Bounds:
        """Return the log's bounds, as they were a moment ago."""
        async with self._asking:
            if time.monotonic() - self._seen_at >= _FRESH_SECONDS:
                self._bounds = await event.bounds(self._database)
                self._seen_at = time.monotonic()
            return self._bounds
