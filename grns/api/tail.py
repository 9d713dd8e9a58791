"""The log as readers may see it: where it begins, and up to where nothing turns up between any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from grns.errors import TooManyRequests
from grns.store import event
from grns.store.database import Database
from grns.store.event import Bounds

_FRESH_SECONDS = 0.25
_MOST_READERS = 200


class Tail:
    """One for all readers of a process: however many they are, the log's end is asked for as often."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asking = asyncio.Lock()
        self._bounds = Bounds(1, 0)
        self._seen_at = -_FRESH_SECONDS
        self._readers = 0

    async def bounds(self) -> Bounds:
        """Return the log's bounds, as they were a moment ago."""
        async with self._asking:
            if time.monotonic() - self._seen_at >= _FRESH_SECONDS:
                self._bounds = await event.bounds(self._database)
                self._seen_at = time.monotonic()
            return self._bounds

    @contextmanager
    def reader(self) -> Iterator[None]:
        """Be one of those who read along; `TooManyRequests` where there are enough."""
        if self._readers >= _MOST_READERS:
            raise TooManyRequests(f"{_MOST_READERS} read along already")
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1
