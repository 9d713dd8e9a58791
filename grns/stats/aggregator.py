"""The stats aggregator: counts the rows of the event log, each row once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grns.outbox.consumer import Applied, LogConsumer, LogCursor
from grns.outbox.log import Span
from grns.stats import counts as count
from grns.telemetry import failpoint
from grns.telemetry.service_signals import LogCounted, StatsBecameLeader, StatsStandby


@dataclass(slots=True, kw_only=True, eq=False)
class StatsAggregator(LogConsumer):
    """Counts what it reads in the statement that moves the cursor."""

    name: str = "counter"

    async def read_cursor(self) -> LogCursor:
        """Read how far the log is counted."""
        return await count.read_cursor(self.database)

    async def apply(self, cursor: LogCursor, spans: Sequence[Span], after: LogCursor) -> Applied | None:
        """Count the rows of these numbers."""
        failpoint.reach("stats.read")
        return await count.count(self.database, self.lease, cursor, spans, after)

    def note_leading(self, low: int) -> None:
        """Tell that this one counts now."""
        self.emit(StatsBecameLeader(self.lease.epoch, low))

    def note_standby(self, reason: str) -> None:
        """Tell that this one counts no more."""
        self.emit(StatsStandby(reason))

    def note_applied(self, rows: int, low: int, missing: int, applied: Applied) -> None:
        """Tell how much was counted."""
        self.emit(LogCounted(rows, low, missing, applied.age_seconds))
