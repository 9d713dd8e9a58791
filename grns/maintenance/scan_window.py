"""How far back a scan over time has to look.

An index that is always read from its old end gets slow: what was taken from there stays
as dead entries while some old snapshot is open. So a scan looks only at what has come since
the last one, and everywhere at its start and now and then. A reading that changes nothing
begins shortly before what it found first the last time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Generic, TypeVar

_MARGIN_SECONDS = 15.0
_EVERYWHERE_EVERY_SECONDS = 30.0
_READ_EVERYWHERE_EVERY_SECONDS = 300.0

Key = TypeVar("Key")


class ScanWindow:
    """Remembers when a scan began that came to its end, and when everything was looked at last.

    Rows that were locked then, or that were written with a time that had passed, are found for 15 seconds
    more, and when everything is looked at: twice a minute.
    """

    def __init__(self) -> None:
        self._everywhere_at: float | None = None
        self._is_everywhere = True
        self._began_at = self._complete_at = 0.0

    def seconds(self) -> float | None:
        """Return how far back to look now; None is everywhere."""
        self._began_at = now = time.monotonic()
        self._is_everywhere = (
            self._everywhere_at is None or now - self._everywhere_at > _EVERYWHERE_EVERY_SECONDS
        )
        return None if self._is_everywhere else now - self._complete_at + _MARGIN_SECONDS

    def note_end(self) -> None:
        """Note that the scan came to its end."""
        self._complete_at = self._began_at
        if self._is_everywhere:
            self._everywhere_at = time.monotonic()

    def forget(self) -> None:
        """Look everywhere next."""
        self._everywhere_at = None


class ScanPlaces(Generic[Key]):
    """Remembers from which time on each of several indexes is to be read.

    Entries are added in the order of time, but for those of transactions that have been open for longer than
    15 seconds: once in five minutes everything is read.
    """

    def __init__(self) -> None:
        self._places: dict[Key, datetime] = {}
        self._read_at: datetime | None = None
        self._everywhere_at = time.monotonic()
        self._is_everywhere = True

    def places(self) -> Mapping[Key, datetime]:
        """Return where to begin; what is not named is read from the first entry."""
        now = time.monotonic()
        self._is_everywhere = now - self._everywhere_at > _READ_EVERYWHERE_EVERY_SECONDS
        if self._is_everywhere:
            self._everywhere_at = now  # if it takes too long, it is not tried again at once
            return {}
        return self._places

    def note(self, firsts: Mapping[Key, datetime | None], read_at: datetime) -> None:
        """Note the first entry of each index, None if there was none; all times are Postgres's."""
        found = {
            key: min(first or read_at, read_at) - timedelta(seconds=_MARGIN_SECONDS)
            for key, first in firsts.items()
        }
        self._places = found if self._is_everywhere else self._places | found
        if self._read_at is not None and read_at < self._read_at:  # another server, or another clock
            self._places = {}
        self._read_at = read_at
