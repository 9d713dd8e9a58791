"""One connection of a client: closed if it is idle for long, so that no client can occupy them all."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from grns.api.answer import ProblemAnswer
from grns.api.route import PREFIX
from grns.errors import GrnsError, InvalidInputError, RateLimitedError
from grns.model import problem

# Of the descriptors that a process has, most are for others: the daemons may run in it, too.
_MOST = 500
# Of one address: the rest is for others. Behind a proxy all connections have one.
_MOST_OF_PEER = 400
# Beyond these, for probes alone: a process that is full is not one that has died.
_RESERVED = 20
_PROBES = frozenset({"/livez", "/readyz"})
_READING = frozenset({"GET", "HEAD"})
_LOOK_SECONDS = 20.0
_UPLOAD_BYTES = 64 * 1024


class WatchedConnection(H11Protocol):
    """uvicorn's connection, looked at now and then.

    It is closed where it looks as it did the last time: without a request, with one that does not become
    whole, or with an answer that is not read. However slowly bytes come, a request has to be there by then.
    One that is idle is closed at once where another one needs its place.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin: as any other, for a probe alone where all places are taken, or not at all."""
        super().connection_made(transport)
        self._state: tuple[Any, ...] = ()
        self._received = 0
        self._looking: asyncio.TimerHandle | None = None
        self._idle_since = self.loop.time()
        self._is_spare = not (self._finds_room(_MOST) and self._finds_room(_MOST_OF_PEER, of_peer=True))
        if len(self.connections) > _MOST + _RESERVED:
            transport.abort()
            return
        self.app = partial(_entered, self.app, self._is_spare)
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request; a spare connection is for one alone."""
        self._idle_since = self.loop.time()
        if self._is_spare:
            self.transport.close()
        super().on_response_complete()

    def _finds_room(self, most: int, *, of_peer: bool = False) -> bool:
        """Say whether this is one of no more than `most`, once one that is idle has ended for it.

        Those that have never asked for anything end first, then those that have been idle for longest.
        """
        if len(self.connections) <= most:
            return True
        all_here = [one for one in self.connections if isinstance(one, WatchedConnection)]
        counted = [one for one in all_here if one._peer == self._peer] if of_peer else all_here
        if len(counted) <= most:
            return True
        idle = [one for one in counted if one is not self and not one._is_at_work]
        if not idle:
            return False
        min(idle, key=lambda one: (one.cycle is not None, one._idle_since))._give_way()
        return True

    def _look_later(self) -> None:
        self._looking = self.loop.call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        state = (self.cycle, self._is_answered, self.transport.get_write_buffer_size(), self._uploaded)
        if state == self._state and not self._is_at_work:
            self.transport.abort()
            return
        self._state = state
        self._look_later()

    def data_received(self, data: bytes) -> None:
        """Take in what the client has sent."""
        self._received += len(data)
        super().data_received(data)

    @property
    def _uploaded(self) -> int:
        """How many parts of a blob have come: what comes more slowly than a part between two looks is cut."""
        is_upload = self.cycle is not None and f"{PREFIX}/blobs" in self.cycle.scope["path"]
        return self._received // _UPLOAD_BYTES if is_upload else 0

    def _give_way(self) -> None:
        """End for another connection."""
        self.connections.discard(self)
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    @property
    def _peer(self) -> str | None:
        return None if self.client is None else self.client[0]

    @property
    def _is_answered(self) -> bool:
        return self.cycle is not None and self.cycle.response_complete

    @property
    def _is_at_work(self) -> bool:
        """Say whether it is we who are waited for."""
        if self.cycle is None or self._is_answered:
            return False
        return not self.cycle.more_body and not self.flow.write_paused


async def _entered(app: ASGIApp, is_full: bool, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request: with a problem where it is not taken, and for as long as its client is there."""
    refused = _refusal(scope, is_full)
    if refused is not None:
        answer = ProblemAnswer(problem.of(refused))
        answer.headers["Connection"] = "close"
        await answer(scope, receive, send)
    elif scope["method"] in _READING:
        await _while_wanted(app, scope, receive, send)
    else:
        await app(scope, receive, send)


def _refusal(scope: Scope, is_full: bool) -> GrnsError | None:
    names = {name for name, _ in scope["headers"]}
    if {b"content-length", b"transfer-encoding"} <= names:
        # A proxy that goes by the other one takes for a second request what is the body of the first.
        return InvalidInputError("bad_length", "a request has Content-Length or Transfer-Encoding, not both")
    if is_full and scope["path"] not in _PROBES:
        return RateLimitedError(f"all {_MOST} connections of this process are in use")
    return None


async def _while_wanted(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request that changes nothing, and end when its client has gone."""
    messages: asyncio.Queue[Message] = asyncio.Queue(maxsize=1)
    is_answered = False

    async def tell(message: Message) -> None:
        nonlocal is_answered
        await send(message)
        is_answered = message["type"] == "http.response.body" and not message.get("more_body", False)

    async def hear() -> None:
        while (message := await receive())["type"] != "http.disconnect":
            await messages.put(message)
        if not is_answered:
            answering.cancel()

    answering = asyncio.ensure_future(app(scope, messages.get, tell))
    hearing = asyncio.ensure_future(hear())
    try:
        await asyncio.wait([answering])
    finally:
        hearing.cancel()
        answering.cancel()
    with suppress(asyncio.CancelledError):
        await answering
