"""The text indexer: keeps the words of tasks and of mail, so that both can be searched."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from grns.errors import ContendedError, InvalidInputError, OutcomeUnknownError
from grns.model.json import loads_stored
from grns.model.words import words_of
from grns.postgres.database import Database, Row
from grns.runtime.adaptive_batch import AdaptiveBatchSize
from grns.runtime.service import PeriodicService
from grns.telemetry.service_signals import TickFailed

_ROWS = 2_000
_ROWS_WITH_PAYLOADS = 500
_PAYLOAD_BYTES = 64 * 1024
_ERROR_WORDS = 50  # a failure may be that of a million tasks
_UNTIL_PAUSE = 50


@dataclass(slots=True, kw_only=True, eq=False)
class TextIndexer(PeriodicService):
    """Reads the log up to its high-water mark, and indexes the tasks and messages that it names, as they are.

    What it reads again does no harm. Of several indexers, one moves the cursor, and what the others have read
    is not written. A batch that takes too long is halved; one row that Postgres refuses is stepped over.
    """

    database: Database
    has_payloads: bool = False
    name: str = "text_indexer"
    tick_seconds: float = 1.0
    _batch_size: AdaptiveBatchSize = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the largest batch."""
        self._batch_size = AdaptiveBatchSize(_ROWS_WITH_PAYLOADS if self.has_payloads else _ROWS)

    async def tick(self) -> float:
        """Index what the next rows of the log tell of."""
        return 0.0 if await self.step() else self.tick_seconds

    async def step(self) -> bool:
        """Index what one batch of rows tells of; True if there are more."""
        try:
            has_more = await self._index(self._batch_size.rows)
        except (InvalidInputError, ContendedError, OutcomeUnknownError) as error:
            # A row that Postgres refuses, it always refuses; any other fault passes, and is tried again.
            if self._batch_size.shorten() or not isinstance(error, InvalidInputError):
                raise
            self.emit(TickFailed(self.name, f"a row of the log is not indexed: {error}"))
            return await self._index(1, is_empty=True)
        self._batch_size.lengthen()
        return has_more

    async def _index(self, rows_at_most: int, *, is_empty: bool = False) -> bool:
        limit = _PAYLOAD_BYTES if self.has_payloads else None
        rows = await self.database.run("read_texts", rows_at_most, limit)
        low, high, has_more = rows[0]["low"], rows[0]["high"], rows[0]["has_more"]
        if high == low:
            return False
        said: dict[str, str] = {}
        for number, row in enumerate(rows):
            if number % _UNTIL_PAUSE == 0:
                await asyncio.sleep(0)
            if row["owner"] is not None and not is_empty:
                said[row["owner"]] = " ".join(words_of(_texts(row)))
        owners = sorted(said)
        await self.database.run("write_texts", low, high, owners, [said[owner] for owner in owners])
        return bool(has_more)


def _texts(row: Row) -> Sequence[Any]:
    """Return what a task or a message says, the most important first: a long one is cut."""
    error = words_of([row["error"]], _ERROR_WORDS)
    return [row["title"], row["tags"], error, row["description"], _document(row["payload"])]


def _document(text: str | None) -> Any:
    try:
        return loads_stored(text)
    except (ValueError, RecursionError):  # SQL takes messages that are deeper than Python reads
        return None
