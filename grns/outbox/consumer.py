"""A service that acts on every row of the event log, as it becomes visible.

One consumer leads at a time, others stand by. It acts on what it has read in one statement that also moves
its cursor, and that does nothing once another one leads: whenever a consumer dies, the next one continues
exactly there. A number that is missing delays nothing: it is taken when its row becomes visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from grns.errors import ContendedError, GrnsError, InvalidInputError, OutcomeUnknownError, UnavailableError
from grns.outbox.log import Span
from grns.outbox.watermark import Watermark
from grns.postgres.database import Database, Row
from grns.runtime.adaptive_batch import AdaptiveBatchSize
from grns.runtime.leader import LeaderLease
from grns.runtime.service import PeriodicService

LEASE_SECONDS = 5.0  # many ticks: it is renewed in them
_STANDBY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class LogCursor:
    """How far the log is read: everything up to `low`, and `beyond` above it.

    It is the row's as long as `moves` is, and the epoch of the leader's lease.
    """

    moves: int
    low: int
    beyond: list[Span]

    @classmethod
    def of(cls, row: Row) -> LogCursor:
        """Return the cursor of a row with moves, low, done_from and done_to."""
        return cls(row["moves"], row["low"], list(zip(row["done_from"], row["done_to"], strict=True)))


@dataclass(frozen=True, slots=True)
class VisibleNumbers:
    """Which numbers one snapshot of the log shows. Transactions below `xmin` had all ended in it."""

    spans: list[Span]
    xmin: int


@dataclass(frozen=True, slots=True)
class Applied:
    """What came of one statement.

    Attributes:
        xid: id of its transaction: one that took a number of the log before has a lower one.
        age_seconds: age of the latest row; 0 without rows.
        has_moved: whether the cursor has moved; False where the same rows have to be acted on again.
    """

    xid: int
    age_seconds: float = 0.0
    has_moved: bool = True


async def read_numbers(database: Database, missing: Sequence[Span], high: int, limit: int) -> VisibleNumbers:
    """Read what became visible of the missing numbers, and what lies beyond `high`, in one snapshot."""
    rows = await database.run(
        "read_numbers", [span[0] for span in missing], [span[1] for span in missing], high, limit
    )
    spans = [(row["lower_seq"], row["upper_seq"]) for row in rows if row["lower_seq"] is not None]
    return VisibleNumbers(spans, rows[0]["snapshot_xmin"])


@dataclass(slots=True, kw_only=True, eq=False)
class LogConsumer(PeriodicService):
    """Leads, or stands by to. A subclass says what is done with rows, and where its cursor is."""

    database: Database
    lease: LeaderLease
    tick_seconds: float = 0.5
    most_rows: int = 5000
    _batch_size: AdaptiveBatchSize = field(init=False)
    _cursor: LogCursor | None = field(default=None, init=False)
    _progress: Watermark = field(default_factory=lambda: Watermark(0), init=False)

    def __post_init__(self) -> None:
        """Begin with the largest batch."""
        self._batch_size = AdaptiveBatchSize(self.most_rows)

    async def read_cursor(self) -> LogCursor:
        """Read the cursor; a leader does once it holds the lease."""
        raise NotImplementedError

    async def apply(self, cursor: LogCursor, spans: Sequence[Span], after: LogCursor) -> Applied | None:
        """Act on the rows of these numbers, move the cursor, renew the lease: all at once, or nothing.

        None where another one leads, the cursor has moved, or the rows are gone.
        """
        raise NotImplementedError

    def note_leading(self, low: int) -> None:
        """Tell that this one leads now."""
        raise NotImplementedError

    def note_standby(self, reason: str) -> None:
        """Tell that this one leads no more."""
        raise NotImplementedError

    def note_applied(self, rows: int, low: int, missing: int, applied: Applied) -> None:
        """Tell of what was done."""
        raise NotImplementedError

    @property
    def low(self) -> int:
        """Up to which number all rows are read; 0 while it does not lead."""
        return 0 if self._cursor is None else self._cursor.low

    @property
    def has_work(self) -> bool:
        """Whether there is something to do without new rows."""
        return False

    async def end(self) -> None:
        """Release the lease, so that a standby need not wait for its end."""
        if self._cursor is None:
            return
        self._stand_by("stopped")
        with suppress(GrnsError):  # else it ends by itself
            await self.lease.release(self.database)

    async def tick(self) -> float:
        """Act on one batch, if this consumer leads or can."""
        if self._cursor is None and not await self.lead():
            return _STANDBY_SECONDS
        try:
            has_more = await self.step(self._batch_size.rows)
        except GrnsError as error:
            # Whatever is known may be wrong by now: the cursor is read again.
            self._stand_by(str(error))
            if isinstance(error, InvalidInputError | ContendedError | OutcomeUnknownError):
                self._batch_size.shorten()  # a smaller batch may fit in time, or leave out the bad row
            raise
        self._batch_size.lengthen()
        return 0.0 if has_more else self.tick_seconds

    async def lead(self) -> bool:
        """Become the leader; False while another one leads."""
        if not await self.lease.acquire(self.database):
            return False
        self._cursor = await self.read_cursor()
        self._progress = Watermark(self._cursor.low, self._cursor.beyond)
        self.note_leading(self._cursor.low)
        return True

    async def step(self, rows: int) -> bool:
        """Act on what is new and on what was missing; True where there may be more.

        Raises `UnavailableError` where it leads no more.
        """
        progress = self._progress
        reading = await read_numbers(self.database, progress.missing, progress.high, rows)
        numbers = [number for span in reading.spans for number in range(*span)]
        taken = progress.take(numbers, xmin=reading.xmin, limit=rows)
        spans = [span for span in reading.spans if span[1] <= numbers[taken - 1] + 1] if taken else []
        if spans or self.lease.is_due or self.has_work:
            for span in spans:
                progress.done.add_span(*span)
            while not await self._apply(spans, taken):
                pass
        return len(numbers) >= rows

    async def _apply(self, spans: Sequence[Span], rows: int) -> bool:
        cursor, done = self._cursor, self._progress.done
        if cursor is None:
            raise UnavailableError("this consumer does not lead")
        after = replace(cursor, moves=cursor.moves + 1, low=done.low, beyond=done.beyond)
        applied = await self.apply(cursor, spans, after)
        if applied is None:
            raise UnavailableError("another one leads now, or Postgres was failed over")
        if not applied.has_moved:
            return False
        self._progress.bound(applied.xid)
        self._cursor = after
        self.note_applied(rows, done.low, self._progress.missing_count, applied)
        return True

    def _stand_by(self, reason: str) -> None:
        self._cursor = None
        self.note_standby(reason)
