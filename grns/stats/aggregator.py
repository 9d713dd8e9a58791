"""The counter: counts what the log says, each row once.

One counter leads at a time, others stand by. What it reads it counts in one statement that also moves the
cursor, and that does nothing where the lead is another's by then: whenever a counter dies, the next one goes
on exactly there. A number that is missing holds nothing up: it is counted when its row becomes visible.
"""

from __future__ import annotations

from dataclasses import replace

from grns.errors import ContendedError, GrnsError, InvalidInputError, OutcomeUnknownError, UnavailableError
from grns.outbox.watermark import Span, Watermark
from grns.postgres.database import Database
from grns.runtime.adaptive_batch import AdaptiveBatchSize
from grns.runtime.leader import LeaderLease
from grns.runtime.service import PeriodicService
from grns.stats import counts as count
from grns.telemetry import failpoint
from grns.telemetry.emit import Emit
from grns.telemetry.facts.upkeep import LogCounted, StatsBecameLeader, StatsStandby

_MOST_ROWS = 5000
_LEASE_SECONDS = 5.0
_STANDBY_SECONDS = 0.5


class AggregatorLeadership:
    """The lead, while it lasts: the cursor as its row has it, and what of the log is missing."""

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


class StatsAggregator:
    """Leads, or stands by to."""

    def __init__(self, *, database: Database, owner: str, tick_seconds: float, emit: Emit) -> None:
        self._database = database
        self._tick_seconds = tick_seconds
        # It is renewed in ticks.
        self._lease = LeaderLease("stats", owner, max(_LEASE_SECONDS, 3 * tick_seconds))
        self._emit = emit
        self._batch_size = AdaptiveBatchSize(_MOST_ROWS)
        self._lead: AggregatorLeadership | None = None
        self._daemon = PeriodicService("counter", self._tick, emit=emit)

    async def run(self) -> None:
        """Count until stopped."""
        await self._daemon.run()
        if self._lead is not None:
            await self._hand_over()

    def stop(self) -> None:
        """Ask for the end."""
        self._daemon.stop()

    async def _tick(self) -> float:
        if self._lead is None:
            self._lead = await self._take()
        if self._lead is None:
            return _STANDBY_SECONDS
        try:
            has_more = await self._lead.step(self._batch_size.rows)
        except GrnsError as error:
            # Whatever is known may be wrong by now: the cursor is read again.
            self._follow(str(error))
            if isinstance(error, InvalidInputError | ContendedError | OutcomeUnknownError):
                self._batch_size.shorten()  # a smaller batch may fit in time, or leave out the bad row
            raise
        self._batch_size.lengthen()
        return 0.0 if has_more else self._tick_seconds

    async def _take(self) -> AggregatorLeadership | None:
        if not await self._lease.acquire(self._database):
            return None
        cursor = await count.read_cursor(self._database)
        self._emit(StatsBecameLeader(self._lease.epoch, cursor.low))
        return AggregatorLeadership(self._database, self._lease, cursor, emit=self._emit)

    async def _hand_over(self) -> None:
        """Give the lead up, so that a standby need not wait."""
        self._follow("stopped")
        try:
            await self._lease.release(self._database)
        except GrnsError:
            return  # its lease ends by itself

    def _follow(self, reason: str) -> None:
        self._lead = None
        self._emit(StatsStandby(reason))
