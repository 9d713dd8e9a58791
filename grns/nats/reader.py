"""nats-py's client with short cuts for what it reads. Where they do not fit, it is as slow as it was."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

from grns.nats.received import Received, read_headers

OnMessage = Callable[[Msg], None]
OnPlain = Callable[[str, bytes], None]

_PLAIN_LINE = re.compile(rb"MSG ([^\s]+) (\d{1,9}) (\d{1,9})\r\n")  # one that wants no reply
_ACK = b"$JS.ACK."
_LINE_END = 2
_LARGE = 64 * 1024


class MessageHandler(NamedTuple):
    """Who takes a subscription's messages, as they are read. Neither may block.

    What has neither headers nor a reply goes to `on_plain` instead, where there is one,
    by its subject and body.
    """

    on_message: OnMessage
    on_plain: OnPlain | None = None


_NOBODY = MessageHandler(lambda _message: None)


class _Parser(Parser):
    """Hands on plain messages in one go, without taking apart what is not all there yet."""

    nc: ReadingClient

    async def parse(self, data: bytes = b"") -> None:
        if self.state != AWAITING_CONTROL_LINE:
            await super().parse(data)
            return
        self.buf.extend(data)
        failures: list[Exception] = []
        has_unknown = self._hand_on_plain(failures)
        for failure in failures:
            await self.nc._error_cb(failure)
        if has_unknown:
            await super().parse()

    def _hand_on_plain(self, failures: list[Exception]) -> bool:
        """Hand on the plain messages at the front; True where something else comes then."""
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
            if sid not in known or (on_plain := handlers.get(sid, _NOBODY).on_plain) is None:
                break
            place = end + _LINE_END
            count += 1
            body_bytes += end - start
            try:
                on_plain(subject.decode(), buffer[start:end])
            except Exception as error:  # what escapes here would end the loop that reads
                failures.append(error)
        del self.buf[:place]
        self.nc.stats["in_msgs"] += count
        self.nc.stats["in_bytes"] += body_bytes
        # of a large one nats-py keeps the line: here it would be read again with each piece
        return place < size and not (is_cut and end - start < _LARGE)


class ReadingClient(Client):
    """Messages go to their handler as they are read, not through a queue to a task that calls it.

    Deliveries for a subscription that has ended go to `on_stray`, by their reply subject: the server
    may send some even after it has confirmed the end, and counts them as delivered.
    """

    def __init__(self, on_stray: Callable[[str], None]) -> None:
        super().__init__()
        self._ps = _Parser(self)
        self._on_stray = on_stray
        self.handlers: dict[int, MessageHandler] = {}

    async def _send_ping(self, future: asyncio.Future[None] | None = None) -> None:
        """Write what is pending before the ping: nats-py would write the ping first."""
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
        except Exception as error:  # what escapes here would end the loop that reads
            await self._error_cb(error)

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        """Return the headers as far as they can be read: nats-py's own reading may end the loop."""
        return read_headers(headers) if headers else None

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Take in what a server tells of its cluster; forget those that are no part of it any more.

        nats-py only adds. Where addresses change, most of those it knows would be dead in the end.
        """
        await super()._process_info(info, initial_connection)
        if told := info.get("connect_urls"):
            self._server_pool = [
                server
                for server in self._server_pool
                if not server.discovered or server is self._current_server or server.uri.netloc in told
            ]

    async def _process_connect_init(self) -> None:
        """Connect; how often servers failed until then says nothing of the next time."""
        await super()._process_connect_init()
        for server in self._server_pool:
            server.reconnects = 0
