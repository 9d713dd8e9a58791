"""The log as the relay reads it, and the relay's cursor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from grns.model import subjects
from grns.postgres.database import Database, Row, Session
from grns.runtime.leader import LeaderLease

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
    """What one snapshot of the log shows. Transactions below `xmin` had all ended in it."""

    entries: list[LogEntry]
    xmin: int


@dataclass(frozen=True, slots=True)
class LogRange:
    """One page of the log: where it ended, None where there was nothing, and what of it is wanted."""

    last_seq: int | None
    entries: Sequence[LogEntry]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> LogRange:
        """Build the range from rows: its last number, then the columns of `LogEntry` in order."""
        return cls(rows[0]["last_seq"], [LogEntry._make(row[1:]) for row in rows if row["seq"] is not None])


class LostRange(NamedTuple):
    """Of a stream that is given back what it has lost: from which number on, and up to where it has it."""

    since: int
    settled: int


@dataclass(frozen=True, slots=True)
class LastAcknowledged:
    """Where a stream was when it last acknowledged something: which one it was, and its highest number.

    And what of the log it has lost, where it has not got all of that back.
    """

    epoch: str | None
    last_seq: int
    lost: LostRange | None = None


@dataclass(frozen=True, slots=True)
class RelayCursor:
    """How far the log has been published: everything up to `low`, and `published` beyond it;
    and what the streams of events and dead letters had then. It holds on one timeline of the server."""

    timeline: int
    low: int
    published: list[Span]
    places: dict[str, LastAcknowledged]


async def read_cursor(database: Database | Session) -> RelayCursor:
    """Read how far the log has been published; a leader does once it holds the lease."""
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
    return LastAcknowledged(row[f"{name}_epoch"], row[f"{name}_last_seq"], lost)


async def hold(database: Database | Session, lease: LeaderLease, cursor: RelayCursor) -> int | None:
    """Persist the cursor and renew the lease; None if another relay leads, or this is another server.

    Returns the id of the transaction that did so: those that took a number before have lower ones.
    """
    sent_at = time.monotonic()
    events, dead_letters = cursor.places[subjects.EVT_STREAM], cursor.places[subjects.DLQ_STREAM]
    rows = await database.run(
        "hold_relay", lease.epoch, lease.seconds, cursor.low, [span[0] for span in cursor.published],
        [span[1] for span in cursor.published], events.epoch, events.last_seq, *(events.lost or _NOTHING),
        dead_letters.epoch, dead_letters.last_seq, *(dead_letters.lost or _NOTHING), cursor.timeline,
    )  # fmt: skip
    if not rows:
        return None
    lease.note_renewal(sent_at)
    xid: int = rows[0]["xid"]
    return xid


async def read(database: Database | Session, missing: Sequence[Span], high: int, limit: int) -> LogSnapshot:
    """Read what became visible of the missing numbers, and what lies beyond `high`, in one snapshot."""
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
    """Read one page of the log, and of it those kinds that one of `patterns` (regular expressions) finds."""
    rows = await database.run(
        "read_stretch", after, up_to, limit, since, until, workspace, list(patterns), most_bytes
    )
    return LogRange.of(rows)


async def first_since(database: Database | Session, moment: datetime, high: int) -> int:
    """Return a number of the log such that rows from there on are younger than a moment, by bisection."""
    return await _first_since(database, moment, None, 0.0, high)


async def first_near(database: Database | Session, row: int, seconds: float, high: int) -> int:
    """Return one such that what is before it was written so many seconds before that row, or earlier."""
    return await _first_since(database, None, row, seconds, high)


async def _first_since(
    database: Database | Session, moment: datetime | None, row: int | None, seconds: float, high: int
) -> int:
    rows = await database.run("read_log_age", moment, row, seconds, high)
    number: int = rows[0]["seq"]
    return number
