"""The event log as the relay reads it, and the relay's cursor."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from grns.model import subjects
from grns.postgres.database import Database, Row, Session
from grns.runtime.leader import LeaderLease

# Rows are ordered by number and only nearly by time, and the broker stores them in neither order: this many
# rows before and after a bound are read, too.
MARGIN_ROWS = 20_000
# Rows read at a time; fewer if they are large.
FIRST_ROWS, MOST_ROWS = 100, 1000
READ_BYTES = 8 * 1024 * 1024
# Rows of a page at most: what is in flight when a relay dies is sent twice.
_PAGE_ROWS = 500
_READ_SECONDS = 0.25  # the leader lease is not renewed meanwhile
_NOTHING = (None, None)

Span = tuple[int, int]  # numbers from the first up to, but not including, the second


class LogEntry(NamedTuple):  # made for each message: a dataclass takes several times as long to make
    """One row of the log."""

    seq: int
    version: int
    message_id: str
    workspace: str
    task_id: str | None
    kind: str
    route: str | None
    trace_id: str
    causation_id: str | None
    payload: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """The rows that one snapshot of the log shows. All transactions below `xmin` had ended in it."""

    entries: list[LogEntry]
    xmin: int


@dataclass(frozen=True, slots=True)
class LogRange:
    """One page of the log: its last number (None if it is empty) and its matching rows."""

    last_seq: int | None
    entries: Sequence[LogEntry]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> LogRange:
        """Build the range from rows: its last number, then the columns of `LogEntry` in order."""
        return cls(rows[0]["last_seq"], [LogEntry._make(row[1:]) for row in rows if row["seq"] is not None])


class LostRange(NamedTuple):
    """Rows that a stream has lost: those after `since`; up to `settled` it has them again."""

    since: int
    settled: int


class Mark(NamedTuple):
    """A number in a stream, and the row of the log whose message has it, unless the stream has lost that."""

    seq: int
    row: int


@dataclass(frozen=True, slots=True)
class LastAcknowledged:
    """The epoch and highest number of a stream at its last acknowledgement, and messages of ours in it.

    `lost` are the rows that it has lost and does not have again yet; `marks` are in order.
    """

    epoch: str | None
    last_seq: int
    lost: LostRange | None = None
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class RelayCursor:
    """How far the log has been published: everything up to `low`, and `published` beyond it.

    `places` has the positions of the streams of events and dead letters. It holds for one server timeline.
    """

    timeline: int
    low: int
    published: list[Span]
    places: dict[str, LastAcknowledged]


async def read_cursor(database: Database | Session) -> RelayCursor:
    """Read how far the log has been published; the leader does so once it holds the lease."""
    (row,) = await database.run("read_relay_cursor")
    spans = list(zip(row["published_from"], row["published_to"], strict=True))
    places = {
        subjects.EVT_STREAM: _place(row, "evt"),
        subjects.DLQ_STREAM: _place(row, "dlq"),
    }
    return RelayCursor(row["timeline"], row["low"], spans, places)


def _place(row: Row, name: str) -> LastAcknowledged:
    since = row[f"{name}_lost_since"]
    lost = None if since is None else LostRange(since, row[f"{name}_lost_settled"])
    marks = tuple(map(Mark, row[f"{name}_mark_seqs"], row[f"{name}_mark_rows"]))
    return LastAcknowledged(row[f"{name}_epoch"], row[f"{name}_last_seq"], lost, marks)


async def hold(
    database: Database | Session, lease: LeaderLease, cursor: RelayCursor, *, is_idle: bool = False
) -> int | None:
    """Persist the cursor and renew the lease; return None if another relay leads or the server changed.

    While `is_idle`, transactions that no process tells of wake the relay by NOTIFY.

    Returns the id of this transaction: transactions that took a number before it have lower ids.
    """
    sent_at = time.monotonic()
    events, dead_letters = cursor.places[subjects.EVT_STREAM], cursor.places[subjects.DLQ_STREAM]
    rows = await database.run(
        "hold_relay", lease.epoch, lease.seconds, cursor.low, [span[0] for span in cursor.published],
        [span[1] for span in cursor.published], events.epoch, events.last_seq, *(events.lost or _NOTHING),
        dead_letters.epoch, dead_letters.last_seq, *(dead_letters.lost or _NOTHING), cursor.timeline,
        is_idle, *_columns(events.marks), *_columns(dead_letters.marks),
    )  # fmt: skip
    if not rows:
        return None
    lease.note_renewal(sent_at)
    xid: int = rows[0]["xid"]
    return xid


def _columns(marks: Sequence[Mark]) -> tuple[list[int], list[int]]:
    return [mark.seq for mark in marks], [mark.row for mark in marks]


async def read(database: Database | Session, missing: Sequence[Span], high: int, limit: int) -> LogSnapshot:
    """Read the missing numbers that became visible, and rows beyond `high`, in one snapshot."""
    rows = await database.run(
        "read_log", [span[0] for span in missing], [span[1] for span in missing], high, limit
    )
    # The bound of the snapshot comes first, then the columns of `LogEntry` in its order.
    entries = [LogEntry._make(row[1:]) for row in rows if row["seq"] is not None]
    return LogSnapshot(entries, rows[0]["snapshot_xmin"])


async def read_range(
    database: Database | Session,
    after: int,
    up_to: int,
    limit: int,
    most_bytes: int,
    patterns: Sequence[str],
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    workspace: str | None = None,
) -> LogRange:
    """Read one page of the log; return rows whose kind matches one of `patterns` (regular expressions)."""
    rows = await database.run(
        "read_stretch", after, up_to, limit, since, until, workspace, list(patterns), most_bytes
    )
    return LogRange.of(rows)


async def first_since(database: Database | Session, moment: datetime, high: int) -> int:
    """Find, by bisection, a number of the log from which on all rows are younger than `moment`."""
    return await _first_since(database, moment, None, 0.0, high)


async def first_near(database: Database | Session, row: int, seconds: float, high: int) -> int:
    """Find a number before which all rows were written at least `seconds` before the row `row`."""
    return await _first_since(database, None, row, seconds, high)


async def _first_since(
    database: Database | Session, moment: datetime | None, row: int | None, seconds: float, high: int
) -> int:
    rows = await database.run("read_log_age", moment, row, seconds, high)
    number: int = rows[0]["seq"]
    return number


# Reads a page: after a number, up to a number, maximum rows, maximum bytes.
ReadPage = Callable[[int, int, int, int], Awaitable[LogRange]]


@dataclass(slots=True)
class RangeReader:
    """Reads one range of the log page by page; matching rows may be far apart."""

    read_page: ReadPage
    _rows: int = _PAGE_ROWS

    async def next(self, after: int, up_to: int) -> tuple[int, Sequence[LogEntry]]:
        """Read pages until one has matching rows or 0.25 s are over; return the last number and the rows."""
        until = time.monotonic() + _READ_SECONDS
        while after < up_to:
            page = await self.read_page(after, up_to, self._rows, READ_BYTES)
            after = up_to if page.last_seq is None else page.last_seq
            self._rows = min(next_rows(self._rows, page.entries), _PAGE_ROWS)
            if page.entries or time.monotonic() > until:
                return after, page.entries
        return after, []


def next_rows(rows: int, entries: Sequence[LogEntry]) -> int:
    """Return the number of rows to read next: twice as many each time, fewer if they were large."""
    size = sum(len(entry.payload) for entry in entries)
    if size > READ_BYTES:
        return max(1, min(rows, len(entries)) * READ_BYTES // size)
    return min(2 * rows, MOST_ROWS)
