"""The stats aggregator: counts the rows of the event log, each row once.

One aggregator leads at a time, others stand by. It counts what it has read in one statement that also moves
the cursor, and that does nothing once another one leads: whenever an aggregator dies, the next one continues
exactly there. A number that is missing delays nothing: it is counted when its row becomes visible.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace

from grns.errors import ContendedError, GrnsError, InvalidInputError, OutcomeUnknownError, UnavailableError
from grns.outbox.watermark import Span, Watermark
from grns.postgres.database import Database
from grns.runtime.adaptive_batch import AdaptiveBatchSize
from grns.runtime.leader import LeaderLease
from grns.runtime.service import PeriodicService
from grns.stats import counts as count
from grns.telemetry import failpoint
from grns.telemetry.service_signals import LogCounted, StatsBecameLeader, StatsStandby
from grns.telemetry.signal import Emit

_MOST_ROWS = 5000
LEASE_SECONDS = 5.0  # many ticks: it is renewed in them
_STANDBY_SECONDS = 0.5


class AggregatorLeadership:
    """The aggregator's work while it leads: the cursor as its row has it, and what of the log is missing."""

    def __init__(
        self, database: Database, lease: LeaderLease, cursor: count.StatsCursor, *, emit: Emit
    ) -> None:
        self._database = database
        self._lease = lease
        self._cursor = cursor
        self._progress = Watermark(cursor.low, cursor.counted)
        self._emit = emit

    async def step(self, rows: int) -> bool:
        """Count what is new and what was missing; True where there may be more.

        Raises `UnavailableError` where it leads no more.
        """
        progress = self._progress
        reading = await count.read(self._database, progress.missing, progress.high, rows)
        numbers = [number for span in reading.spans for number in range(*span)]
        taken = progress.take(numbers, xmin=reading.xmin, limit=rows)
        spans = [span for span in reading.spans if span[1] <= numbers[taken - 1] + 1] if taken else []
        if spans or self._lease.is_due:
            await self._count(spans, taken)
        return len(numbers) >= rows

    async def _count(self, spans: list[Span], rows: int) -> None:
        done = self._progress.done
        for span in spans:
            done.add_span(*span)
        failpoint.reach("stats.read")
        counted = await count.count(
            self._database, self._lease, self._cursor, spans, low=done.low, counted=done.beyond
        )
        if counted is None:
            raise UnavailableError("another counter counts now, or Postgres was failed over")
        self._progress.bound(counted.xid)
        self._cursor = replace(self._cursor, moves=self._cursor.moves + 1, low=done.low, counted=done.beyond)
        self._emit(LogCounted(rows, done.low, self._progress.missing_count, counted.age_seconds))


@dataclass(slots=True, kw_only=True, eq=False)
class StatsAggregator(PeriodicService):
    """Leads, or stands by to."""

    database: Database
    lease: LeaderLease
    name: str = "counter"
    tick_seconds: float = 0.5
    _batch_size: AdaptiveBatchSize = field(default_factory=lambda: AdaptiveBatchSize(_MOST_ROWS), init=False)
    _leadership: AggregatorLeadership | None = field(default=None, init=False)

    async def end(self) -> None:
        """Release the lease, so that a standby need not wait for its end."""
        if self._leadership is None:
            return
        self._stand_by("stopped")
        with suppress(GrnsError):  # else it ends by itself
            await self.lease.release(self.database)

    async def tick(self) -> float:
        """Count one batch, if this aggregator leads or can."""
        leadership = self._leadership or await self._acquire()
        if leadership is None:
            return _STANDBY_SECONDS
        try:
            has_more = await leadership.step(self._batch_size.rows)
        except GrnsError as error:
            # Whatever is known may be wrong by now: the cursor is read again.
            self._stand_by(str(error))
            if isinstance(error, InvalidInputError | ContendedError | OutcomeUnknownError):
                self._batch_size.shorten()  # a smaller batch may fit in time, or leave out the bad row
            raise
        self._batch_size.lengthen()
        return 0.0 if has_more else self.tick_seconds

    async def _acquire(self) -> AggregatorLeadership | None:
        if not await self.lease.acquire(self.database):
            return None
        cursor = await count.read_cursor(self.database)
        self.emit(StatsBecameLeader(self.lease.epoch, cursor.low))
        self._leadership = AggregatorLeadership(self.database, self.lease, cursor, emit=self.emit)
        return self._leadership

    def _stand_by(self, reason: str) -> None:
        self._leadership = None
        self.emit(StatsStandby(reason))
