"""Retry a batch item by item, so that a row locked by another session fails alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from grns.errors import BacklogFullError, ContendedError, GrnsError, OverBudgetError, UnavailableError

Item = TypeVar("Item")
Answer = TypeVar("Answer")
# Sends items in one transaction, and returns the answer to each.
Send: TypeAlias = Callable[[Sequence[Item]], Awaitable[Sequence[Answer | GrnsError]]]

_AT_ONCE = 2
_MOST_REFUSED = 8  # each takes as long as we wait for a lock


async def send_all(send: Send[Item, Answer], batch: Sequence[Item]) -> Sequence[Answer | GrnsError]:
    """Send many in one statement; if a row is locked, a pool full or a budget used up, each alone."""
    try:
        return await send(batch)
    except (ContendedError, BacklogFullError, OverBudgetError):
        if len(batch) == 1:
            raise
    return await _Singles(send).send(batch)


class _Singles(Generic[Item, Answer]):
    """Sends items alone, two at a time; stops after too many failures, which no single item can cause."""

    def __init__(self, send: Send[Item, Answer]) -> None:
        self._send = send
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._refused: list[UnavailableError] = []

    async def send(self, batch: Sequence[Item]) -> list[Answer | GrnsError]:
        """Return the answer to each item."""
        return await asyncio.gather(*(self._send_one(item) for item in batch))

    async def _send_one(self, item: Item) -> Answer | GrnsError:
        async with self._turns:
            if len(self._refused) >= _MOST_REFUSED:
                return UnavailableError(f"not sent: {self._refused[-1]}")
            try:
                return (await self._send([item]))[0]
            except UnavailableError as error:
                self._refused.append(error)
                return error
            except GrnsError as error:
                return error
