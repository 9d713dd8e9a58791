"""Stretches of the log that are read again, a page at a time: as many rows as are not too large together."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

from grns.outbox.log import LogEntry, LogRange

# Rows stand in the order of their numbers, and only nearly in that of their times, nor does the broker store
# them in either: what lies so near to a bound is looked at too.
MARGIN_ROWS = 20_000
# How much is read at a time: rows, and fewer where they are large.
FIRST_ROWS, MOST_ROWS = 100, 1000
READ_BYTES = 8 * 1024 * 1024
# No page of a stretch has more: what is under way when a relay dies goes out twice.
_PAGE_ROWS = 500
_READ_SECONDS = 0.25  # the lead is not kept meanwhile

# Reads a page: after a number, up to a number, so many rows at most, of so many bytes.
Read = Callable[[int, int, int, int], Awaitable[LogRange]]


class RangeReader:
    """Turns the pages of one stretch, in which what is wanted may stand far apart."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._rows = _PAGE_ROWS

    async def next(self, after: int, up_to: int) -> tuple[int, Sequence[LogEntry]]:
        """Read on until there is something wanted, or for long enough; says up to where, and what."""
        until = time.monotonic() + _READ_SECONDS
        while after < up_to:
            page = await self._read(after, up_to, self._rows, READ_BYTES)
            after = up_to if page.last_seq is None else page.last_seq
            self._rows = min(next_rows(self._rows, page.entries), _PAGE_ROWS)
            if page.entries or time.monotonic() > until:
                return after, page.entries
        return after, []


def next_rows(rows: int, entries: Sequence[LogEntry]) -> int:
    """Return how many rows to read after so many: more each time, as long as they stay small."""
    size = sum(len(entry.payload) for entry in entries)
    if size > READ_BYTES:
        return max(1, min(rows, len(entries)) * READ_BYTES // size)
    return min(2 * rows, MOST_ROWS)
