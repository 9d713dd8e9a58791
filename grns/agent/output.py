"""What an HTTP worker streams: gathered for a tenth of a second, and posted in the background."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from grns.errors import GrnsError, InvalidInputError
from grns.model.outcome import Claim
from grns.model.output import ENDED, MARKS, SUSPENDED, Chunk
from grns.worker.output import AttemptOutput

if TYPE_CHECKING:
    from grns.agent.http import AgentHttp

_PAUSE_SECONDS = 0.1
_SECONDS = 5.0
_MOST_WAITING = 1000
_AT_ONCE, _MOST_BYTES = 50, 64 * 1024  # the last one may exceed it


class HttpOutputPublisher:
    """Posts what one attempt streams. What cannot be sent is lost; only the outcome waits for it."""

    def __init__(self, http: AgentHttp, token: str) -> None:
        self._http = http
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Chunk] = deque()
        self._posting: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._has_more = False

    def note(self, attempt: AttemptOutput, *, is_full: bool) -> None:
        """Note that there is something to send. Any thread may call it."""
        self._loop.call_soon_threadsafe(self._begin, attempt)

    def send(self, _claim: Claim, chunk: Chunk) -> bool:
        """Keep a chunk for the next request; return whether there is room."""
        if len(self._waiting) >= _MOST_WAITING:
            return False
        self._waiting.append(chunk)
        return True

    def note_dropped(self, claim: Claim, chunks: int) -> None:
        """Readers see the gap, and the server counts what it could not send."""

    async def close(self) -> None:
        """Post the rest."""
        self._closing.set()
        if self._posting is not None:
            await self._posting
        await self._post()

    def _begin(self, attempt: AttemptOutput) -> None:
        self._has_more = True
        if self._posting is None or self._posting.done():
            self._posting = asyncio.create_task(self._run(attempt))

    async def _run(self, attempt: AttemptOutput) -> None:
        while self._has_more:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_SECONDS):
                    await self._closing.wait()
            self._has_more = False
            attempt.send()
            await self._post()

    async def _post(self) -> None:
        while self._waiting:
            chunks, size = [self._waiting.popleft()], 0
            while self._waiting and len(chunks) < _AT_ONCE and size < _MOST_BYTES:
                size += len(json.dumps(chunks[-1].data))
                chunks.append(self._waiting.popleft())
            body: dict[str, Any] = {
                "token": self._token,
                "first": chunks[0].number,
                "chunks": [{"kind": one.kind, "data": one.data} for one in chunks if one.kind not in MARKS],
                "is_suspended": chunks[-1].kind == SUSPENDED,
                "has_ended": chunks[-1].kind == ENDED,
            }
            try:
                await self._http.post("/queue/stream", body, seconds=_SECONDS)
            except InvalidInputError:  # these alone are lost
                continue
            except GrnsError:
                self._waiting.clear()  # a lost lease is told by what decides
