"""A way to Postgres that is cut, or held up, where a word comes along it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit


class Way:
    """Passes on what clients and the server say; `word` says where it ends, or waits."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.url = ""
        self.word: bytes | None = None
        self.delay_seconds: float | None = None  # instead of cutting it
        self.met = 0
        self._open: set[asyncio.Task[None]] = set()

    def take_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Begin with one connection."""
        passing = asyncio.create_task(self._pass_on(reader, writer))
        self._open.add(passing)
        passing.add_done_callback(self._open.discard)

    async def close(self) -> None:
        """Cut what is left."""
        for passing in self._open:
            passing.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection(self._host, self._port)

        async def ask() -> None:
            while said := await reader.read(65536):
                if self.word is not None and self.word in said:
                    self.met += 1
                    if self.delay_seconds is None:
                        return
                    await asyncio.sleep(self.delay_seconds)
                server.write(said)

        async def answer() -> None:
            while said := await answers.read(65536):
                writer.write(said)

        ways = {asyncio.create_task(ask()), asyncio.create_task(answer())}
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for end in (server, writer):
                with suppress(OSError):
                    end.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)


@asynccontextmanager
async def way_to(url: str) -> AsyncIterator[Way]:
    """Open a way to a database."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    way = Way(parts.hostname, parts.port)
    server = await asyncio.start_server(way.take_in, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    way.url = urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{port}")))
    try:
        yield way
    finally:
        server.close()
        await way.close()
