"""The inspection: page by page, whether all that Postgres holds could have come about as it should.

It only reads, never locks, and each page is one statement, hence one moment: it may run beside
everything else. What it cannot see are effects outside of Postgres.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from grns.errors import ContendedError, OutcomeUnknownError
from grns.maintenance.audit import (
    FIRST_RUN,
    INVARIANTS,
    OF_NOW,
    Violation,
    audit_log,
    audit_now,
    audit_schedules,
    audit_tasks,
)
from grns.postgres.database import Database
from grns.runtime.adaptive_batch import AdaptiveBatchSize
from grns.telemetry.service_signals import InvariantChecked, InvariantViolated
from grns.telemetry.signal import Emit

_TASKS, _ROWS = 1000, 5000
_MOST_KEPT = 1000
_MOST_TOLD = 20
_NOW_EVERY_SECONDS = 60.0


class ConsistencyCheck:
    """One look at everything. `counts` has all that was found by invariant, `findings` the first thousand."""

    def __init__(self, database: Database, *, stuck_after_seconds: float) -> None:
        self._database = database
        self._patience_seconds = stuck_after_seconds
        self._last_id, self._last_seq, self._last_run = "", 0, FIRST_RUN
        self._batch_size = AdaptiveBatchSize(_TASKS)
        self.tasks = 0
        self.log_rows = 0
        self.schedule_runs = 0
        self.counts: Counter[str] = Counter()
        self.findings: list[Violation] = []

    async def look_at_all(self, tell: Callable[[], None] | None = None) -> None:
        """Look at everything there is; `tell` is called after each page."""
        await self.look_at_now()
        for look in self.walks:
            while await look():
                if tell is not None:
                    tell()

    @property
    def walks(self) -> Sequence[Callable[[], Awaitable[bool]]]:
        """The functions that each look at one page, in their order."""
        return self.look_at_tasks, self.look_at_log, self.look_at_schedules

    async def look_at_tasks(self) -> bool:
        """Look at one page of tasks; True where there are more."""
        rows = self._batch_size.rows
        try:
            page = await audit_tasks(self._database, self._last_id, rows)
        except (ContendedError, OutcomeUnknownError):
            # Tasks with a long history: half as many may be answered in time.
            if not self._batch_size.shorten():
                raise
            return True
        self._batch_size.lengthen()
        self._last_id = page.last
        self.tasks += page.seen
        self._note(page.findings)
        return page.seen == rows

    async def look_at_log(self) -> bool:
        """Look at one page of the log; True where there is more."""
        page = await audit_log(self._database, self._last_seq, _ROWS)
        self._last_seq = page.last
        self.log_rows += page.seen
        self._note(page.findings)
        return page.seen == _ROWS

    async def look_at_schedules(self) -> bool:
        """Look at one page of decisions about times of schedules; True if there are more."""
        page = await audit_schedules(self._database, self._last_run, _ROWS)
        self._last_run = page.last
        self.schedule_runs += page.seen
        self._note(page.findings)
        return page.seen == _ROWS

    async def look_at_now(self) -> None:
        """Look for what should have gone on by now."""
        self._note(await audit_now(self._database, self._patience_seconds))

    def _note(self, findings: Sequence[Violation]) -> None:
        self.counts.update(finding.invariant for finding in findings)
        self.findings += findings[: _MOST_KEPT - len(self.findings)]


class ConsistencyMonitor:
    """Inspects again and again, a page at a time, and tells what it has found: to the log and the metrics."""

    def __init__(
        self, database: Database, *, stuck_after_seconds: float, every_seconds: float, emit: Emit
    ) -> None:
        self._database = database
        self._patience_seconds = stuck_after_seconds
        self._every_seconds = every_seconds
        self._emit = emit
        self._now_at = 0.0
        self._walk_at = 0.0
        self._walk: ConsistencyCheck | None = None
        self._left: list[Callable[[], Awaitable[bool]]] = []

    async def step(self) -> bool:
        """Do a little of it, if it is time to; True where there is more to be done at once."""
        if time.monotonic() >= self._now_at:
            self._now_at = time.monotonic() + _NOW_EVERY_SECONDS
            inspection = self._inspection()
            await inspection.look_at_now()
            self._tell(inspection, OF_NOW)
        if self._walk is None:
            if time.monotonic() < self._walk_at:
                return False
            self._walk_at = time.monotonic() + self._every_seconds
            self._walk = self._inspection()
            self._left = list(self._walk.walks)
        if not await self._left[0]():
            del self._left[0]
        if not self._left:
            self._tell(self._walk, [name for name in INVARIANTS if name not in OF_NOW])
            self._walk = None
        return self._walk is not None

    def _inspection(self) -> ConsistencyCheck:
        return ConsistencyCheck(self._database, stuck_after_seconds=self._patience_seconds)

    def _tell(self, inspection: ConsistencyCheck, invariants: Sequence[str]) -> None:
        for finding in inspection.findings[:_MOST_TOLD]:
            self._emit(InvariantViolated(finding.invariant, finding.task_id, finding.detail))
        for name in invariants:
            self._emit(InvariantChecked(name, inspection.counts[name]))
