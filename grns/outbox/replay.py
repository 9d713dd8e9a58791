"""Replays on request: rows of `grns.replays`, and the replayer that publishes their events again.

The progress of a replay is in its row, so that the next leader resumes it; events that were in flight are
sent again then, and may count as duplicates.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from grns.errors import ConflictError, InvalidInputError, NotFoundError
from grns.nats.messages import Receipt
from grns.outbox import log
from grns.postgres.database import Database, Row, Session
from grns.telemetry.service_signals import ReplayDone, ReplayTaken
from grns.telemetry.signal import Emit

_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Replay:
    """A requested replay and its progress. The bounds are None until a relay has begun it."""

    id: int
    workspace: str | None
    patterns: Sequence[str]
    since: datetime
    until: datetime
    first_seq: int | None
    after_seq: int | None
    up_to_seq: int | None
    stored: int
    duplicates: int


async def request(
    database: Database,
    *,
    workspace: str | None,
    patterns: Sequence[str],
    since: float | datetime,
    until: float | datetime,
    remembered_seconds: float | None,
) -> int:
    """Request a replay between two times, or two numbers of seconds ago; return its number.

    Raises `ConflictError` if it starts before `remembered_seconds` ago: event handlers have forgotten which
    of these events they have handled, and would handle them again. None skips this check.
    """
    (row,) = await database.run(
        "request_replay", workspace, list(patterns), *_moment(since), *_moment(until),
        remembered_seconds,
    )  # fmt: skip
    if not row["is_stretch"]:
        raise InvalidInputError("bad_stretch", "a replay must begin in the past, and before it ends")
    if row["id"] is None:
        raise ConflictError("the replay starts before event handlers remember which events they have handled")
    number: int = row["id"]
    return number


def _moment(value: float | datetime) -> tuple[datetime | None, float | None]:
    """Return a time as the statement takes it: a timestamp, or seconds before the server's clock."""
    return (value, None) if isinstance(value, datetime) else (None, value)


async def progress(database: Database, number: int) -> Row:
    """Return the progress of a replay."""
    rows = await database.run("read_replay", number)
    if not rows:
        raise NotFoundError(f"no replay {number}: it was deleted or never requested")
    return rows[0]


async def withdraw(database: Database, number: int) -> bool:
    """End a replay early; return False if it had ended."""
    return bool(await database.run("withdraw_replay", number))


async def _oldest(session: Database | Session) -> Replay | None:
    """Return the oldest replay that has not ended."""
    rows = await session.run("next_replay")
    return Replay(**rows[0]) if rows else None


async def _hold(session: Database | Session, epoch: int, replay: Replay) -> bool:
    """Persist the progress; return False if the replay is withdrawn or another relay leads."""
    rows = await session.run(
        "hold_replay", epoch, replay.id, replay.first_seq, replay.after_seq, replay.up_to_seq, replay.stored,
        replay.duplicates,
    )  # fmt: skip
    return bool(rows)


async def _read_page(
    session: Database | Session, replay: Replay, after: int, up_to: int, limit: int, most_bytes: int
) -> log.LogRange:
    """Read one page of the events of a replay."""
    return await log.read_range(
        session, after, up_to, limit, most_bytes, replay.patterns,
        since=replay.since, until=replay.until, workspace=replay.workspace,
    )  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Replayer:
    """Does one requested replay at a time, and of it one page at a time."""

    session: Session
    epoch: int
    emit: Emit
    _current: Replay | None = None
    _pages: log.RangeReader | None = None  # of the current replay
    _look_at: float = 0.0
    _is_disturbed: bool = False
    _page_end: int | None = None
    _in_flight: int = 0
    _stored: int = 0
    _duplicates: int = 0

    def note(self, receipt: Receipt) -> None:
        """Count a message that the broker has stored or recognized as duplicate."""
        self._in_flight -= 1
        self._stored += not receipt.duplicate
        self._duplicates += receipt.duplicate

    async def next(self, high: int, *, is_held: bool) -> Sequence[log.LogEntry]:
        """Return the rows to send next; none while a page is in flight.

        `high` is the highest number that the relay has read: it publishes rows beyond it anyway. While
        `is_held`, the broker receives again what it has lost; it may have lost rows of this replay, too.
        """
        if is_held:
            self._is_disturbed = self._current is not None
            return []
        if self._in_flight:
            return []
        current = await self._take(high) if self._current is None else self._settled(self._current)
        if current is None:
            return []
        if not await self._note_progress(current):
            return []
        return await self._read(current, high)

    async def _take(self, high: int) -> Replay | None:
        """Take the oldest replay that has not ended, once a second."""
        if time.monotonic() < self._look_at:
            return None
        self._look_at = time.monotonic() + _LOOK_SECONDS
        found = await _oldest(self.session)
        if found is None:
            return None
        found = await self._bounded(found, high) if found.up_to_seq is None else _within(found, high)
        self._is_disturbed, self._pages = False, None
        self.emit(ReplayTaken(found.id, found.after_seq or 0, found.up_to_seq or 0))
        return found

    async def _bounded(self, found: Replay, high: int) -> Replay:
        """Return the replay with its range of numbers, up to `high`."""
        first = await log.first_since(self.session, found.since, high)
        last = await log.first_since(self.session, found.until, high)
        first = max(1, first - log.MARGIN_ROWS)
        return replace(
            found, first_seq=first, after_seq=first - 1, up_to_seq=min(high, last + log.MARGIN_ROWS)
        )

    def _settled(self, current: Replay) -> Replay:
        """Return the replay with its latest page done, or from its start if the broker has lost something."""
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
        """Persist the progress; return False if the replay is done or withdrawn."""
        self._stored = self._duplicates = 0
        is_wanted = await _hold(self.session, self.epoch, current)
        is_done = (current.after_seq or 0) >= (current.up_to_seq or 0)
        self._current = current if is_wanted and not is_done else None
        if self._current is None:
            self._look_at = 0.0
        if is_wanted and is_done:
            self.emit(ReplayDone(current.id, current.stored, current.duplicates))
        return self._current is not None

    async def _read(self, current: Replay, high: int) -> Sequence[log.LogEntry]:
        """Read the next matching rows, if some are near."""
        if self._pages is None:
            self._pages = log.RangeReader(partial(_read_page, self.session, current))
        after, bound = current.after_seq or 0, min(current.up_to_seq or 0, high)
        if after >= bound:
            return []
        self._page_end, entries = await self._pages.next(after, bound)
        self._in_flight = len(entries)
        return entries


def _within(found: Replay, high: int) -> Replay:
    """Return a replay that another relay has begun, with no bound beyond `high`.

    After a failover the log may end before the bound, and numbers may not reach it for long; the relay
    publishes rows beyond `high` anyway.
    """
    return replace(
        found,
        first_seq=min(found.first_seq or 1, high + 1),
        after_seq=min(found.after_seq or 0, high),
        up_to_seq=min(found.up_to_seq or 0, high),
    )
