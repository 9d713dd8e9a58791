"""A network that can be bad: a TCP proxy whose connections can be slow, cut, or silent."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress

HOST = "127.0.0.1"
_CHUNK = 65_536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards connections from a port of its own to another one.

    `latency_seconds` is added to each direction. While a direction is silent, what is sent in it
    arrives only after it is not: as with a network that drops packets, which are sent again.
    """

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.latency_seconds = 0.0
        self.is_refusing = False
        self._to_server = asyncio.Event()
        self._to_client = asyncio.Event()
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self.heal()

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._connected, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Cut everything, and listen no more."""
        if self._server is not None:
            self._server.close()
        self.cut()

    @property
    def is_used(self) -> bool:
        """Say whether anybody is connected."""
        return bool(self._links)

    def heal(self) -> None:
        """Be a good network again."""
        self.latency_seconds = 0.0
        self.is_refusing = False
        self._to_server.set()
        self._to_client.set()

    def cut(self) -> int:
        """Reset all connections; returns how many there were."""
        links = list(self._links)
        for link in links:
            link.reset()
        return len(links)

    def silence(self, *, to_server: bool = True, to_client: bool = True) -> None:
        """Let nothing through in one direction, or both: the connections stay open, and still."""
        if to_server:
            self._to_server.clear()
        if to_client:
            self._to_client.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection. Nobody awaits this but asyncio, which takes a cancelled task for a bug."""
        with suppress(asyncio.CancelledError):
            await self._serve(reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far = None if self.is_refusing else await _dial(self.target_port)
        if far is None:
            _reset(writer)
            return
        far_reader, far_writer = far
        link = _Link(writer, far_writer)
        self._links.add(link)
        directions = (
            self._forward(reader, far_writer, self._to_server),
            self._forward(far_reader, writer, self._to_client),
        )
        try:
            with suppress(OSError):
                await asyncio.gather(*directions)
        finally:
            self._links.discard(link)
            link.reset()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_open: asyncio.Event
    ) -> None:
        """Forward one direction to its end, and say its end on."""
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

        async def deliver() -> None:
            while True:
                due, data = await under_way.get()
                await asyncio.sleep(due - loop.time())
                await is_open.wait()
                if not data:
                    writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()

        delivering = asyncio.create_task(deliver())
        try:
            data = b"-"
            while data and not delivering.done():
                data = await reader.read(_CHUNK)
                await under_way.put((loop.time() + self.latency_seconds, data))
            await delivering
        finally:
            delivering.cancel()
            with suppress(OSError, asyncio.CancelledError):
                await delivering


class _Link:
    """Both ends of one connection."""

    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self._writers = writers

    def reset(self) -> None:
        for writer in self._writers:
            _reset(writer)


async def _dial(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    try:
        return await asyncio.open_connection(HOST, port)
    except OSError:
        return None


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close at once, as after a crash: the other side gets a reset, not a farewell."""
    with suppress(OSError, AttributeError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
