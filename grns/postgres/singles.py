"""What could not be done together, one by one: only the one that waits for a stranger is refused then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from grns.errors import ContendedError, GrnsError, UnavailableError

Item = TypeVar("Item")
Answer = TypeVar("Answer")
# Sends some in one transaction, and returns what became of each.
Send: TypeAlias = Callable[[Sequence[Item]], Awaitable[Sequence[Answer | GrnsError]]]

_AT_ONCE = 2
_MOST_REFUSED = 8  # each takes as long as we wait for a lock


async def send_all(send: Send[Item, Answer], batch: Sequence[Item]) -> Sequence[Answer | GrnsError]:
    """Send many in one statement; where a stranger holds what one of them needs, each by itself."""
    try:
        return await send(batch)
    except ContendedError:
        if len(batch) == 1:
            raise
    return await _Singles(send).send(batch)


class _Singles(Generic[Item, Answer]):
    """Sends items one by one, two at a time, until too many were refused: then it is none of them's fault."""

    def __init__(self, send: Send[Item, Answer]) -> None:
        self._send = send
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._refused: list[UnavailableError] = []

    async def send(self, batch: Sequence[Item]) -> list[Answer | GrnsError]:
        """Return what became of each."""
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
