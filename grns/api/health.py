"""Whether this process lives, and whether it can do its work."""

from __future__ import annotations

import asyncio
import time

from pydantic import BaseModel

from grns.errors import GrnsError
from grns.postgres import migrate
from grns.postgres.database import Database

_FRESH_SECONDS = 2.0
_PATIENCE_SECONDS = 3.0


class Readiness(BaseModel):
    """`ok`, or what is missing."""

    status: str


class HealthProbe:
    """Asks Postgres now and then, however often it is asked."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._needed: str | None = None
        self._asking = asyncio.Lock()
        self._obstacle: str | None = None
        self._seen_at = -_FRESH_SECONDS

    async def obstacle(self) -> str | None:
        """Return why requests cannot be answered, None where they can: as it was within the last seconds."""
        async with self._asking:
            if time.monotonic() - self._seen_at >= _FRESH_SECONDS:
                self._obstacle = await self._look()
                self._seen_at = time.monotonic()
            return self._obstacle

    async def _look(self) -> str | None:
        if self._needed is None:
            self._needed = await asyncio.to_thread(migrate.newest)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                rows = await self._database.run("read_revision")
        except (GrnsError, TimeoutError):
            return "postgres does not answer"
        if not rows or rows[0]["version_num"] != self._needed:
            return "the schema is not the one of this version: run `grns admin db upgrade`"
        return None
