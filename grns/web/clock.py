"""The time by which everything here was dated: the database's, asked for now and then."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from grns.dead_letters import listing
from grns.errors import GrnsError
from grns.postgres.database import Database

_FRESH_SECONDS = 10.0


class DisplayClock:
    """One for all pages of a process: relative times need no better one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asked_at = 0.0
        self._said: datetime | None = None

    async def now(self) -> datetime:
        """Return the time."""
        passed = time.monotonic() - self._asked_at
        if self._said is not None and passed < _FRESH_SECONDS:
            return self._said + timedelta(seconds=passed)
        try:
            self._said = await listing.now(self._database)
        except GrnsError:  # pages that say so are dated by our own
            return datetime.now(UTC)
        self._asked_at = time.monotonic()
        return self._said
