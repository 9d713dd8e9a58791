"""The inspection: page by page, whether all that Postgres holds could have come about as it should.

It only reads, never locks, and each page is one statement, hence one moment: it may run beside
everything else. What it cannot see are effects outside of Postgres.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from grns.store.audit import Finding, audit_log, audit_now, audit_tasks
from grns.store.database import Database

_TASKS, _ROWS = 1000, 5000
_MOST_KEPT = 1000


class Inspection:
    """One look at everything. `counts` has all that was found by invariant, `findings` the first thousand."""

    def __init__(self, database: Database, *, patience_seconds: float) -> None:
        self._database = database
        self._patience_seconds = patience_seconds
        self._last_id, self._last_seq = "", 0
        self.tasks = 0
        self.log_rows = 0
        self.counts: Counter[str] = Counter()
        self.findings: list[Finding] = []

    async def look_at_tasks(self) -> bool:
        """Look at one page of tasks; True where there are more."""
        page = await audit_tasks(self._database, self._last_id, _TASKS)
        self._last_id = page.last
        self.tasks += page.seen
        self._note(page.findings)
        return page.seen == _TASKS

    async def look_at_log(self) -> bool:
        """Look at one page of the log; True where there is more."""
        page = await audit_log(self._database, self._last_seq, _ROWS)
        self._last_seq = page.last
        self.log_rows += page.seen
        self._note(page.findings)
        return page.seen == _ROWS

    async def look_at_now(self) -> None:
        """Look for what should have gone on by now."""
        self._note(await audit_now(self._database, self._patience_seconds))

    def _note(self, findings: Sequence[Finding]) -> None:
        self.counts.update(finding.invariant for finding in findings)
        self.findings += findings[: _MOST_KEPT - len(self.findings)]
