"""nats-py's client with its repairs. All access to private names of nats-py is in this file."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

from grns.nats.messages import encode, read_headers


class Received(Msg):
    """A message whose headers are parsed when they are first read, which most never are."""

    def __init__(self, client: Client, sid: int, subject: str, reply: str, data: bytes, block: bytes) -> None:
        # The other attributes of a `Msg` keep the defaults of its class.
        self._client = client
        self._sid = sid
        self.subject = subject
        self.reply = reply
        self.data = data
        self._block = block
        self._headers: dict[str, str] | None = None

    @property
    def headers(self) -> dict[str, str] | None:  # type: ignore[override]
        """The headers; None if there are none."""
        if self._headers is None and self._block:
            self._headers = read_headers(self._block)
        return self._headers


OnMessage = Callable[[Msg], None]
OnPlain = Callable[[str, bytes], None]

_PLAIN_LINE = re.compile(rb"MSG ([^\s]+) (\d{1,9}) (\d{1,9})\r\n")  # one that wants no reply
_ACK = b"$JS.ACK."
_LINE_END = 2
_LARGE = 64 * 1024


class MessageHandler(NamedTuple):
    """Callbacks for a subscription's messages, called as they are read. Neither may block.

    A message without headers and reply goes to `on_plain`, if given, as subject and body.
    """

    on_message: OnMessage
    on_plain: OnPlain | None = None


_IGNORE = MessageHandler(lambda _message: None)


class _Parser(Parser):
    """A parser that dispatches complete plain messages in one pass."""

    nc: ReadingClient

    async def parse(self, data: bytes = b"") -> None:
        if self.state != AWAITING_CONTROL_LINE:
            await super().parse(data)
            return
        self.buf.extend(data)
        failures: list[Exception] = []
        has_unknown = self._dispatch_plain(failures)
        for failure in failures:
            await self.nc._error_cb(failure)
        if has_unknown:
            await super().parse()

    def _dispatch_plain(self, failures: list[Exception]) -> bool:
        """Dispatch the plain messages at the front; return True if something else follows."""
        buffer, handlers, known = bytes(self.buf), self.nc.handlers, self.nc._subs
        size, place, count, body_bytes = len(buffer), 0, 0, 0
        is_cut, start, end = False, 0, 0
        while line := _PLAIN_LINE.match(buffer, place):
            subject, digits, length = line.groups()
            start = line.end()
            end = start + int(length)
            if is_cut := end + _LINE_END > size:
                break
            sid = int(digits)
            if sid not in known or (on_plain := handlers.get(sid, _IGNORE).on_plain) is None:
                break
            place = end + _LINE_END
            count += 1
            body_bytes += end - start
            try:
                on_plain(subject.decode(), buffer[start:end])
            except Exception as error:  # an exception here would end the read loop
                failures.append(error)
        del self.buf[:place]
        self.nc.stats["in_msgs"] += count
        self.nc.stats["in_bytes"] += body_bytes
        # nats-py keeps the line of a large message: here it would be parsed again with each piece
        return place < size and not (is_cut and end - start < _LARGE)


class ReadingClient(Client):
    """A client that calls handlers as it reads messages, without a queue and a task between them.

    Deliveries for a subscription that has ended go to `on_stray`, by their reply subject: the server
    may send some even after it has confirmed the end, and counts them as delivered.
    """

    def __init__(self, on_stray: Callable[[str], None]) -> None:
        super().__init__()
        self._ps = _Parser(self)
        self._on_stray = on_stray
        self.handlers: dict[int, MessageHandler] = {}

    async def _send_ping(self, future: asyncio.Future[None] | None = None) -> None:
        """Write pending bytes before the ping: nats-py writes it first, which proves nothing."""
        if self._pending and self._transport is not None and self.is_connected:
            self._transport.writelines(self._pending)
            self._pending, self._pending_data_size = [], 0
        await super()._send_ping(future)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        handler = self.handlers.get(sid)
        if sid not in self._subs and reply.startswith(_ACK):
            self._on_stray(reply.decode())
            return
        if handler is None or sid not in self._subs:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        try:
            handler.on_message(Received(self, sid, subject.decode(), reply.decode(), data, headers))
        except Exception as error:  # an exception here would end the read loop
            await self._error_cb(error)

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        """Parse headers leniently: an error of nats-py's own parser would end the read loop."""
        return read_headers(headers) if headers else None

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Learn the servers of the cluster, and forget those that have left it.

        nats-py only adds: where addresses change, most known ones would be dead in the end.
        """
        await super()._process_info(info, initial_connection)
        if urls := info.get("connect_urls"):
            self._server_pool = [
                server
                for server in self._server_pool
                if not server.discovered or server is self._current_server or server.uri.netloc in urls
            ]

    async def _process_connect_init(self) -> None:
        """Connect, and reset the failures of all servers, which say nothing about the next time."""
        await super()._process_connect_init()
        for server in self._server_pool:
            server.reconnects = 0


_MISSED_SECONDS = 0.1
_CLOSE_SECONDS = 2.0
_SLICE_SECONDS = 0.25
_TURNS = 10
_PONG_SECONDS = 86_400


class NatsClient:
    """One client of nats-py, with bounded waits where nats-py may hang or stop reading."""

    def __init__(self, options: dict[str, Any], callbacks: Callable[[NatsClient], dict[str, Any]]) -> None:
        """`callbacks` makes those of this client: nats-py does not say which client it calls back for."""
        self.client = ReadingClient(self._give_back)
        self._options = options | callbacks(self)
        self.was_connected = False  # stays true after a loss: nats-py then subscribes again
        self._pings: set[asyncio.Task[None]] = set()
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0

    @property
    def is_connected(self) -> bool:
        """True while there is a socket that is being read."""
        return self.client.is_connected and not self._has_stopped_reading

    @property
    def is_deaf(self) -> bool:
        """True if the read loop has ended unnoticed by nats-py (`InvalidStateError`, a bad callback)."""
        return self.client.is_connected and self._has_stopped_reading

    @property
    def _has_stopped_reading(self) -> bool:
        reading = getattr(self.client, "_reading_task", None)
        return reading is not None and reading.done()

    @property
    def is_gone(self) -> bool:
        """True if nats-py will not reconnect: after an `-ERR`, or after a bug in its attempt."""
        if self.client.is_closed:
            return True
        attempt = getattr(self.client, "_reconnection_task", None)
        return not self.client.is_connected and attempt is not None and attempt.done()

    @property
    def last_error(self) -> str:
        """Why nats-py gave up, if known; for people."""
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
        """Write an encoded command, together with others of this turn of the loop."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush_unsent)
        self._unsent.append(command)
        self._unsent_bytes += len(command)

    def _give_back(self, reply: str) -> None:
        """Return a delivery for an ended subscription to the broker."""
        self.write(encode(reply, b"-NAK"))

    def _flush_unsent(self) -> None:
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

    async def connect(self) -> None:
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
        self.was_connected = True

    async def ping(self, *, within_seconds: float) -> bool:
        """Ping the server; return False if it does not answer on a socket still in use.

        A ping needs no permission. It is never cancelled while its answer may still come:
        nats-py's read loop ends on the answer to a ping without a waiter.
        """
        self._flush_unsent()
        socket = self._socket
        ping = self._begin(self.client.flush(timeout=_PONG_SECONDS))
        await _wait_for_pong(ping, within_seconds)
        return ping.done() or not self.client.is_connected or self._socket != socket

    async def drain(self, bound: NatsSubscription) -> None:
        """Unsubscribe, and dispatch the messages that the server had sent. It contains a ping."""
        self._flush_unsent()
        draining = self._begin(self._drain(bound))
        await asyncio.wait({draining}, timeout=_CLOSE_SECONDS)

    def set_handler(self, bound: NatsSubscription, handler: MessageHandler) -> None:
        """Call `handler` for a subscription's messages as they are read."""
        handlers, known = self.client.handlers, self.client._subs
        for ended in [sid for sid in handlers if sid not in known]:
            del handlers[ended]
        handlers[getattr(bound, "_id", 0)] = handler

    def forget(self, callback: Callable[[Msg], Coroutine[Any, Any, None]]) -> None:
        """Remove the subscriptions with this callback: nats-py would renew them after each reconnect."""
        for sid, bound in list(self.client._subs.items()):
            if bound._cb == callback:
                bound._stop_processing()
                del self.client._subs[sid]
                self.write(b"UNSUB %d\r\n" % sid)

    async def reconnect(self) -> None:
        """Drop this socket and its unsent bytes, and connect again."""
        self._abort()
        await self.client.force_reconnect()
        self.forget_pings()

    def abort_if_closing(self) -> None:
        """Drop a socket that nats-py waits to flush before it reconnects."""
        self._abort(only_if_closing=True)

    async def close(self) -> None:
        """Close the client and its socket, even if the server does not read."""
        self._flush_unsent()
        closing = asyncio.create_task(self._close_socket())
        await asyncio.wait({closing}, timeout=_CLOSE_SECONDS)
        if not closing.done():
            self._abort()
            await asyncio.wait({closing}, timeout=_CLOSE_SECONDS)
        if closing.done() and not closing.cancelled():
            closing.exception()
        for bound in list(self.client._subs.values()):  # nats-py keeps them if its own closing failed
            bound._stop_processing()
        self.client._subs.clear()
        self.forget_pings()

    async def _close_socket(self) -> None:
        """Wait until the socket is closed: a client that is closing already returns too early."""
        await self.client.close()
        if (writer := self._writer) is not None:
            await writer.wait_closed()

    async def _drain(self, bound: NatsSubscription) -> None:
        drain: Callable[[], Coroutine[Any, Any, None]] = bound.drain
        try:
            await drain()
        finally:  # if the socket was lost meanwhile, nats-py would keep it forever
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
        """Stop waiting for answers to pings, after the socket is gone."""
        for ping in list(self._pings):
            ping.cancel()

    @property
    def _writer(self) -> Any:
        return getattr(getattr(self.client, "_transport", None), "_io_writer", None)

    def _abort(self, *, only_if_closing: bool = False) -> None:
        """Drop the socket with its unsent bytes; nats-py has no public method for that."""
        transport = getattr(self._writer, "transport", None)
        if transport is not None and (transport.is_closing() or not only_if_closing):
            transport.abort()


async def _wait_for_pong(ping: asyncio.Task[None], seconds: float) -> None:
    """Wait for the end of a ping, for so many seconds in which this loop could have read the answer.

    A slice in which a handler blocks the loop counts like any other, however long it was:
    the answer may have arrived, and is not read yet.
    """
    while seconds > 0 and not ping.done():
        await asyncio.wait({ping}, timeout=min(seconds, _SLICE_SECONDS))
        seconds -= _SLICE_SECONDS
    for _ in range(_TURNS):  # it takes some turns from the socket to the end of the task
        if ping.done():
            return
        await asyncio.sleep(0)
