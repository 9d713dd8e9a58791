"""Server-sent events: the log as it grows, for one reader at their own pace."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from typing import Any

from starlette.responses import StreamingResponse

from grns.access.limiter import WorkspaceLimiter
from grns.api.access import RequestContext
from grns.api.answer import dumps
from grns.errors import UnavailableError
from grns.outbox import events as event
from grns.outbox.events import EventQuery, LogEvent, place
from grns.telemetry.service_signals import RequestFailed

EVENT_STREAM = "text/event-stream"

_PAGE = 200
_PAUSE_SECONDS = 0.5
_AWAY_SECONDS = 2.0
_SILENCE_SECONDS = 15.0
# A stream ends after this long: a client that reconnects is authenticated again.
_LONGEST_SECONDS = 600.0
RETRY = b"retry: 1000\n\n"
KEY_ENDED = b": the API key is not valid any more\n\n"


async def stream(request_context: RequestContext, wanted: EventQuery, after: str | None) -> StreamingResponse:
    """Return an answer that goes on: what is behind a number of the log, or happens from now on.

    It ends soon after the key is revoked or has expired; who comes again is then answered with 401.

    A slow client holds one page at most: the next one is read once it has been sent.
    """
    behind = (await request_context.context.tail.bounds()).settled if after is None else place(after)
    readers = request_context.context.tail.readers
    return opened(request_context, readers, lambda ended: _lines(request_context, wanted, behind, ended))


def opened(
    request_context: RequestContext,
    readers: WorkspaceLimiter,
    lines: Callable[[asyncio.Event], AsyncIterator[bytes]],
) -> StreamingResponse:
    """Return an answer that goes on. `lines` gets the event that is set once the key is not valid any more.

    Raises RateLimitedError where the key, or this server, has its most readers.
    """
    ended = asyncio.Event()
    held = ExitStack()
    held.enter_context(readers.place(request_context.principal))
    held.enter_context(request_context.context.key_watch.over(request_context.principal, ended.set))
    return _Stream(lines(ended), held)


class _Stream(StreamingResponse):
    """An answer that gives its place back, however it ends: also before its first line."""

    def __init__(self, content: AsyncIterator[bytes], held: ExitStack) -> None:
        super().__init__(content, media_type=EVENT_STREAM, headers={"X-Accel-Buffering": "no"})
        self._held = held

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send it."""
        with self._held:
            await super().__call__(scope, receive, send)


async def _lines(
    request_context: RequestContext, wanted: EventQuery, behind: int, ended: asyncio.Event
) -> AsyncIterator[bytes]:
    yield RETRY
    ends_at = time.monotonic() + _LONGEST_SECONDS
    told_at, told = time.monotonic(), behind
    while not request_context.context.stopping.is_set() and time.monotonic() < ends_at:
        if ended.is_set():
            yield KEY_ENDED
            return
        try:
            found, seen = await _next(request_context, wanted, behind)
        except UnavailableError as error:
            request_context.context.emit(RequestFailed("list_events", str(error)))
            found, seen = [], behind
            await _pause(request_context, _AWAY_SECONDS)
        if found:
            yield b"".join(map(_line, found))
            told_at, told = time.monotonic(), found[-1].seq
        elif time.monotonic() > told_at + _SILENCE_SECONDS:
            # An id without data: a client that reconnects begins there.
            yield (f"id: {seen}\n" if seen > told else "").encode() + b": nothing new\n\n"
            told_at, told = time.monotonic(), seen
        is_behind, behind = seen > behind, seen
        if not is_behind:
            await _pause(request_context, _PAUSE_SECONDS)


async def _next(
    request_context: RequestContext, wanted: EventQuery, behind: int
) -> tuple[list[LogEvent], int]:
    log = await request_context.context.tail.bounds()
    if log.settled <= behind:
        return [], behind
    async with request_context.reading() as database:
        return await event.read_events(database, wanted, log, behind=behind, limit=_PAGE)


async def _pause(request_context: RequestContext, seconds: float) -> None:
    """Wait, but no longer than this process goes on."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await request_context.context.stopping.wait()


def _line(row: LogEvent) -> bytes:
    # What JSON has as it is, a reader of lines may take for a line's end: U+2028 and its like.
    data = json.dumps(json.loads(dumps(row)))
    return f"id: {row.seq}\nevent: {row.kind}\ndata: {data}\n\n".encode()
