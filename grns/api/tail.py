"""The log as readers may see it: where it begins, and up to where nothing turns up between any more."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from grns.errors import TooManyRequests
from grns.store import event
from grns.store.database import Database
from grns.store.event import Bounds

_FRESH_SECONDS = 0.25
_MOST_READERS, _MOST_OF_ONE = 200, 50


class Tail:
    """One for all readers of a process: however many they are, the log's end is asked for as often."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asking = asyncio.Lock()
        self._bounds = Bounds(1, 0)
        self._seen_at = -_FRESH_SECONDS
        self._readers: Counter[str] = Counter()

    async def bounds(self) -> Bounds:
        """Return the log's bounds, as they were a moment ago."""
        async with self._asking:
            if time.monotonic() - self._seen_at >= _FRESH_SECONDS:
                self._bounds = await event.bounds(self._database)
                self._seen_at = time.monotonic()
            return self._bounds

    @contextmanager
    def reader(self, actor: str) -> Iterator[None]:
        """Be one of those who read along; `TooManyRequests` where there are enough, or of this actor."""
        if self._readers.total() >= _MOST_READERS or self._readers[actor] >= _MOST_OF_ONE:
            raise TooManyRequests(f"{self._readers.total()} read along already")
        self._readers[actor] += 1
        try:
            yield
        finally:
            self._readers[actor] -= 1
            self._readers += Counter()  # those who have gone are forgotten
