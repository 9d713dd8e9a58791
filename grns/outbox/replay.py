"""Replays by hand: the relay publishes again what somebody has asked for, a page at a time.

How far it is stands in its row, so that the next leader goes on from there; what was under way
is sent again then, and may count as duplicate.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from grns.nats.interface import Receipt
from grns.outbox import log
from grns.outbox import log_range as stretch
from grns.outbox import replay_requests as replay
from grns.outbox.log import LogEntry
from grns.outbox.replay_requests import Replay
from grns.postgres.database import Session
from grns.telemetry.service_signals import ReplayDone, ReplayTaken
from grns.telemetry.signal import Emit

_LOOK_SECONDS = 1.0


class Replayer:
    """Does what has been asked for: one replay at a time, and of it one page at a time."""

    def __init__(self, session: Session, *, epoch: int, emit: Emit) -> None:
        self._session = session
        self._epoch = epoch
        self._emit = emit
        self._current: Replay | None = None
        self._pages: stretch.RangeReader | None = None  # of the current one
        self._look_at = 0.0
        self._is_disturbed = False
        self._page_end: int | None = None
        self._under_way = 0
        self._stored = 0
        self._duplicates = 0

    def note(self, receipt: Receipt) -> None:
        """Count what the broker has stored anew, and what it knew."""
        self._under_way -= 1
        self._stored += not receipt.duplicate
        self._duplicates += receipt.duplicate

    async def next(self, high: int, *, is_held: bool) -> Sequence[LogEntry]:
        """Return what is to be sent next, nothing while something is under way.

        `high` is the highest number whose row was seen: what lies beyond goes out by itself. While it is
        held, the broker gets back what it has lost; what it got by hand before that may be lost, too.
        """
        if is_held:
            self._is_disturbed = self._current is not None
            return []
        if self._under_way:
            return []
        current = await self._take(high) if self._current is None else self._settled(self._current)
        if current is None:
            return []
        if not await self._note_progress(current):
            return []
        return await self._read(current, high)

    async def _take(self, high: int) -> Replay | None:
        """Take the oldest replay that has not ended, if it is time to look for one."""
        if time.monotonic() < self._look_at:
            return None
        self._look_at = time.monotonic() + _LOOK_SECONDS
        found = await replay.oldest(self._session)
        if found is None:
            return None
        found = await self._bounded(found, high) if found.up_to_seq is None else _within(found, high)
        self._is_disturbed, self._pages = False, None
        self._emit(ReplayTaken(found.id, found.after_seq or 0, found.up_to_seq or 0))
        return found

    async def _bounded(self, found: Replay, high: int) -> Replay:
        """Return it with its stretch of the log; what is younger than `high` goes out by itself."""
        first = await log.first_since(self._session, found.since, high)
        last = await log.first_since(self._session, found.until, high)
        first = max(1, first - stretch.MARGIN_ROWS)
        return replace(
            found, first_seq=first, after_seq=first - 1, up_to_seq=min(high, last + stretch.MARGIN_ROWS)
        )

    def _settled(self, current: Replay) -> Replay:
        """Return it with its latest page done; from its beginning, where the broker has lost something."""
        page_end, self._page_end = self._page_end, None
        if self._is_disturbed:
            self._is_disturbed, self._pages = False, None
            return replace(current, after_seq=(current.first_seq or 1) - 1, stored=0, duplicates=0)
        if page_end is None:
            return current
        return replace(
            current,
            after_seq=page_end,
            stored=current.stored + self._stored,
            duplicates=current.duplicates + self._duplicates,
        )

    async def _note_progress(self, current: Replay) -> bool:
        """Write down how far it is; False where there is nothing more to do."""
        self._stored = self._duplicates = 0
        is_wanted = await replay.hold(self._session, self._epoch, current)
        is_done = (current.after_seq or 0) >= (current.up_to_seq or 0)
        self._current = current if is_wanted and not is_done else None
        if self._current is None:
            self._look_at = 0.0
        if is_wanted and is_done:
            self._emit(ReplayDone(current.id, current.stored, current.duplicates))
        return self._current is not None

    async def _read(self, current: Replay, high: int) -> Sequence[LogEntry]:
        """Read what is to be sent next, if there is any of it near."""
        if self._pages is None:
            self._pages = stretch.RangeReader(partial(replay.read, self._session, current))
        after, bound = current.after_seq or 0, min(current.up_to_seq or 0, high)
        if after >= bound:
            return []
        self._page_end, entries = await self._pages.next(after, bound)
        self._under_way = len(entries)
        return entries


def _within(found: Replay, high: int) -> Replay:
    """Return what another relay has begun, with no bound beyond `high`.

    A failover may have taken the log back behind its end, which no number reaches then for long; and what
    lies beyond `high` goes out by itself, whoever has sent it before.
    """
    return replace(
        found,
        first_seq=min(found.first_seq or 1, high + 1),
        after_seq=min(found.after_seq or 0, high),
        up_to_seq=min(found.up_to_seq or 0, high),
    )
