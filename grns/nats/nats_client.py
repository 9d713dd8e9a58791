"""One client of nats-py: dialled, asked whether it lives, cut and closed, whatever state its server is in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from grns.nats.reader import MessageHandler, ReadingClient
from grns.nats.wire import encode

_MISSED_SECONDS = 0.1
_CLOSE_SECONDS = 2.0
_SLICE_SECONDS = 0.25
_TURNS = 10
_PONG_SECONDS = 86_400


class NatsClient:
    """Knows what of nats-py can hang or go deaf. The private names it reads may vanish: it copes."""

    def __init__(self, options: dict[str, Any], callbacks: Callable[[NatsClient], dict[str, Any]]) -> None:
        """`callbacks` makes this line's own: nats-py does not say which client it calls back for."""
        self.client = ReadingClient(self._give_back)
        self._options = options | callbacks(self)
        self.is_dialled = False  # stays true when it is lost again: nats-py then repeats what it listens to
        self._pings: set[asyncio.Task[None]] = set()
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0

    @property
    def is_connected(self) -> bool:
        """True while there is a socket that is read from."""
        return self.client.is_connected and not self._has_stopped_reading

    @property
    def is_deaf(self) -> bool:
        """True where the read loop has ended behind nats-py's back (`InvalidStateError`, a bad callback)."""
        return self.client.is_connected and self._has_stopped_reading

    @property
    def _has_stopped_reading(self) -> bool:
        reading = getattr(self.client, "_reading_task", None)
        return reading is not None and reading.done()

    @property
    def is_gone(self) -> bool:
        """True where nats-py will not reconnect any more: after an `-ERR`, or after a bug in its attempt."""
        if self.client.is_closed:
            return True
        attempt = getattr(self.client, "_reconnection_task", None)
        return not self.client.is_connected and attempt is not None and attempt.done()

    @property
    def last_error(self) -> str:
        """Why nats-py gave up, as far as it says so; for people."""
        attempt = getattr(self.client, "_reconnection_task", None)
        error: BaseException | None = self.client.last_error
        if attempt is not None and attempt.done() and not attempt.cancelled():
            error = attempt.exception() or error
        return "" if error is None else f"{type(error).__name__}: {error}"

    @property
    def server(self) -> str:
        """The server it is connected to, for people."""
        url = self.client.connected_url
        return "" if url is None else f"{url.hostname}:{url.port}"

    @property
    def server_version(self) -> str:
        """The version of the server, for people; `unknown` where it has said none that can be read."""
        version = self.client.connected_server_version
        try:
            return f"{version.major}.{version.minor}.{version.patch}"
        except ValueError:
            return "unknown"

    @property
    def _socket(self) -> int:
        """Which one of the client's sockets is in use."""
        return self.client.stats["reconnects"]

    @property
    def backlog(self) -> int:
        """How many bytes wait for the socket."""
        return self.client.pending_data_size + self._unsent_bytes

    def write(self, command: bytes) -> None:
        """Send a finished command, together with what else is written in this turn of the loop."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._hand_on)
        self._unsent.append(command)
        self._unsent_bytes += len(command)

    def _give_back(self, reply: str) -> None:
        """Return a delivery that nobody listens for any more, for somebody else."""
        self.write(encode(reply, b"-NAK"))

    def _hand_on(self) -> None:
        """Give what was written to nats-py's flusher, in one piece: it is slow with many."""
        if not self._unsent:
            return
        client = self.client
        client._pending.append(b"".join(self._unsent))
        client._pending_data_size += self._unsent_bytes
        self._unsent, self._unsent_bytes = [], 0
        queue = client._flush_queue
        if queue is not None and client.is_connected and queue.empty():
            queue.put_nowait(asyncio.get_running_loop().create_future())

    async def dial(self) -> None:
        """Connect, however long it takes, or until cancelled."""
        connecting = asyncio.create_task(self.client.connect(**self._options))
        try:
            await asyncio.wait({connecting})
        finally:
            # Where an attempt fails in the moment of its cancellation, nats-py goes on to the next one.
            while not connecting.done():
                connecting.cancel()
                await asyncio.wait({connecting}, timeout=_MISSED_SECONDS)
            if not connecting.cancelled():
                connecting.exception()
        connecting.result()
        self.is_dialled = True

    async def answers(self, *, within_seconds: float) -> bool:
        """Return False where the server owes a sign of life on a socket that is still in use.

        A ping needs no permission. It is never given up while its answer may still come:
        nats-py's read loop ends on the answer to a ping whose waiter has gone.
        """
        self._hand_on()
        socket = self._socket
        ping = self._begin(self.client.flush(timeout=_PONG_SECONDS))
        await _listen(ping, within_seconds)
        return ping.done() or not self.client.is_connected or self._socket != socket

    async def drain(self, bound: NatsSubscription) -> None:
        """Stop listening; what the server had sent is still handed on. It contains a ping."""
        self._hand_on()
        draining = self._begin(self._drain(bound))
        await asyncio.wait({draining}, timeout=_CLOSE_SECONDS)

    def hand_over(self, bound: NatsSubscription, handler: MessageHandler) -> None:
        """Have a subscription's messages handled as soon as they are read."""
        handlers, known = self.client.handlers, self.client._subs
        for gone in [sid for sid in handlers if sid not in known]:
            del handlers[gone]
        handlers[getattr(bound, "_id", 0)] = handler

    def forget(self, callback: Callable[[Msg], Coroutine[Any, Any, None]]) -> None:
        """Leave nothing of what was to call this back: nats-py would listen again after each reconnect."""
        for sid, bound in list(self.client._subs.items()):
            if bound._cb == callback:
                bound._stop_processing()
                del self.client._subs[sid]
                self.write(b"UNSUB %d\r\n" % sid)

    async def redial(self) -> None:
        """Give up this socket, and what is unsent on it, for another."""
        self._abort()
        await self.client.force_reconnect()
        self.forget_pings()

    def unstick(self) -> None:
        """Let go of a socket that nats-py waits to write out before it reconnects."""
        self._abort(only_if_closing=True)

    async def hang_up(self) -> None:
        """Close the client and its socket, also where the server does not read."""
        self._hand_on()
        closing = asyncio.create_task(self._close())
        await asyncio.wait({closing}, timeout=_CLOSE_SECONDS)
        if not closing.done():
            self._abort()
            await asyncio.wait({closing}, timeout=_CLOSE_SECONDS)
        if closing.done() and not closing.cancelled():
            closing.exception()
        for bound in list(self.client._subs.values()):  # nats-py keeps them where its own closing has failed
            bound._stop_processing()
        self.client._subs.clear()
        self.forget_pings()

    async def _close(self) -> None:
        """Return when the socket is closed; a client that is closing already says too early that it has."""
        await self.client.close()
        if (writer := self._writer) is not None:
            await writer.wait_closed()

    async def _drain(self, bound: NatsSubscription) -> None:
        drain: Callable[[], Coroutine[Any, Any, None]] = bound.drain
        try:
            await drain()
        finally:  # where the socket was lost meanwhile, nats-py would keep it for ever
            for owner, name, arguments in (
                (self.client, "_remove_sub", (getattr(bound, "_id", 0),)),
                (bound, "_stop_processing", ()),
            ):
                getattr(owner, name, lambda *_: None)(*arguments)

    def _begin(self, ping: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def run() -> None:
            with contextlib.suppress(Exception):  # of nats-py, or of a socket that was closed meanwhile
                await ping

        task = asyncio.create_task(run())
        self._pings.add(task)
        task.add_done_callback(self._pings.discard)
        return task

    def forget_pings(self) -> None:
        """Wait for no answer any more, now that the socket that it would come on is gone."""
        for ping in list(self._pings):
            ping.cancel()

    @property
    def _writer(self) -> Any:
        return getattr(getattr(self.client, "_transport", None), "_io_writer", None)

    def _abort(self, *, only_if_closing: bool = False) -> None:
        """Drop the socket with what is still unsent; nats-py has no public way to do that."""
        transport = getattr(self._writer, "transport", None)
        if transport is not None and (transport.is_closing() or not only_if_closing):
            transport.abort()


async def _listen(ping: asyncio.Task[None], seconds: float) -> None:
    """Wait for the end of a ping, for so many seconds in which this loop could have heard the answer.

    A slice in which a handler blocks the loop counts for no more than others, however long
    that was: meanwhile the answer has come, and is not read yet.
    """
    while seconds > 0 and not ping.done():
        await asyncio.wait({ping}, timeout=min(seconds, _SLICE_SECONDS))
        seconds -= _SLICE_SECONDS
    for _ in range(_TURNS):  # from the socket to the end of the task is a way of some turns
        if ping.done():
            return
        await asyncio.sleep(0)
