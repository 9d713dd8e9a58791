"""The text indexer: keeps the words of tasks and of mail, so that both can be searched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from grns.model.json import loads_stored
from grns.model.words import words_of
from grns.postgres.database import Database, Row
from grns.runtime.service import PeriodicService

_ROWS = 5_000
_ROWS_WITH_PAYLOADS = 500
_PAYLOAD_BYTES = 64 * 1024


@dataclass(slots=True, kw_only=True, eq=False)
class TextIndexer(PeriodicService):
    """Reads the log up to its high-water mark, and indexes the tasks and messages that it names, as they are.

    What it reads again does no harm. Of several indexers, one moves the cursor, and what the others have read
    is not written.
    """

    database: Database
    has_payloads: bool = False
    name: str = "text_indexer"
    tick_seconds: float = 1.0

    async def tick(self) -> float:
        """Index what the next rows of the log tell of."""
        return 0.0 if await self.step() else self.tick_seconds

    async def step(self) -> bool:
        """Index what one batch of rows tells of; True if there are more."""
        rows_at_most, bytes_at_most = _ROWS, None
        if self.has_payloads:
            rows_at_most, bytes_at_most = _ROWS_WITH_PAYLOADS, _PAYLOAD_BYTES
        rows = await self.database.run("read_texts", rows_at_most, bytes_at_most)
        low, high, has_more = rows[0]["low"], rows[0]["high"], rows[0]["has_more"]
        if high == low:
            return False
        said = {row["owner"]: " ".join(words_of(_texts(row))) for row in rows if row["owner"] is not None}
        owners = sorted(said)
        await self.database.run("write_texts", low, high, owners, [said[owner] for owner in owners])
        return bool(has_more)


def _texts(row: Row) -> Iterable[Any]:
    """Return what a task or a message says, the most important first: a long one is cut."""
    return [row["title"], row["tags"], row["error"], row["description"], loads_stored(row["payload"])]
