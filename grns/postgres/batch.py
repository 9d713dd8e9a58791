"""Batch concurrent calls: items that wait at the same time are sent in one statement."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from grns.errors import InvalidInputError
from grns.telemetry import failpoint

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batch(Generic[Item, Answer]):
    """Collects items while a statement runs, then sends them as the next one.

    There is no timer: an idle system sends batches of one at once. Each caller receives its answer only after
    its batch has committed. A batch that Postgres refuses because of a value is halved until the bad row is
    alone and only its caller gets the error.
    """

    def __init__(self, send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], *, limit: int) -> None:
        self._send = send
        self._limit = limit
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._sender: asyncio.Task[None] | None = None

    async def ask(self, item: Item) -> Answer:
        """Return the answer for one item, or raise the error of its batch."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._drain())
        return await future

    async def _drain(self) -> None:
        while self._waiting:
            count = min(len(self._waiting), self._limit)
            await self._answer([self._waiting.popleft() for _ in range(count)])

    async def _answer(self, batch: Sequence[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            failpoint.reach("batch.sending")
            answers = await self._send([item for item, _ in batch])
        except InvalidInputError as error:
            if len(batch) == 1:
                _fail(batch, error)
                return
            middle = len(batch) // 2
            await self._answer(batch[:middle])
            await self._answer(batch[middle:])
        except Exception as error:
            _fail(batch, error)
        except BaseException as error:
            # A caller must never wait for an answer that can no longer come.
            _fail(batch, error)
            raise
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)


def _fail(batch: Sequence[tuple[Item, asyncio.Future[Answer]]], error: BaseException) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
