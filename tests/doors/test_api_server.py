"""The API's port: what does not become a request, and who could come in there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial

import httpx2
import pytest

from grns.api import connection
from grns.api.route import PREFIX
from grns.api.server import ApiServer
from tests.doors.test_api_kit import Door, good, serving
from tests.harness import LIMIT_SECONDS, eventually

pytest_plugins = ["tests.doors.test_api_kit", "tests.test_store_kit"]

GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = (
    b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000\r\n\r\n"
)
STREAM = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - nobody is served there


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at connections often."""
    monkeypatch.setattr(connection, "_LOOK_SECONDS", 0.1)


@pytest.fixture
async def server(door: Door) -> AsyncIterator[ApiServer]:
    """A server on a real port."""
    async with serving(door.desk, door.api) as found:
        async with httpx2.AsyncClient(base_url=found.url, timeout=LIMIT_SECONDS) as visitor:
            good(await visitor.get("/livez"))
        yield found


async def opened(server: ApiServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def end_of(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the connection is closed."""
    said = b""
    async with asyncio.timeout(LIMIT_SECONDS):
        try:
            while part := await reader.read(1024):
                said += part
        except ConnectionResetError:
            pass
    return said


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("begun", "more"),
    [(b"", b""), (GET[:9], b"x"), (POST, b""), (POST, b" "), (GET, b""), (GET + GET[:9], b"x")],
    ids=["nothing", "a line", "no body", "a body", "one request", "another line"],
)
async def test_what_does_not_become_a_request_is_given_up(
    server: ApiServer, begun: bytes, more: bytes
) -> None:
    """However often another byte of it comes."""
    reader, writer = await opened(server)
    writer.write(begun)

    async def dribble() -> None:
        while more:
            writer.write(more)
            await asyncio.sleep(0.03)

    dribbling = asyncio.create_task(dribble())
    said = await end_of(reader)
    dribbling.cancel()
    writer.close()
    assert (b"200 OK" in said) is begun.startswith(GET)


@pytest.mark.usefixtures("impatient")
async def test_an_answer_that_takes_long_is_waited_for(server: ApiServer) -> None:
    reader, writer = await opened(server)
    writer.write(STREAM)
    async with asyncio.timeout(LIMIT_SECONDS):
        await reader.readuntil(b"retry: 1000")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await reader.readuntil(b"never")
    assert not reader.at_eof()
    writer.close()


async def _is_alone(server: ApiServer) -> bool:
    return not server._server.server_state.connections


async def test_there_are_no_more_connections_than_there_is_room_for(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_MOST", 2)
    await eventually(partial(_is_alone, server))
    writers = []
    for _ in range(2):
        reader, writer = await opened(server)
        writer.write(GET)
        async with asyncio.timeout(LIMIT_SECONDS):
            assert b"200 OK" in await reader.readuntil(b"\r\n")
        writers.append(writer)
    reader, writer = await opened(server)
    assert await end_of(reader) == b""
    for one in (*writers, writer):
        one.close()


@contextmanager
def bound(door: Door, host: str) -> Iterator[ApiServer]:
    """Take a port, and give it back."""
    server = ApiServer(door.desk, door.api, host=host, port=0)
    try:
        yield server
    finally:
        server._socket.close()


@pytest.mark.parametrize(("host", "is_loopback"), [("localhost", True), (EVERYWHERE, False)])
async def test_where_a_name_has_led_to_says_who_can_come_in(door: Door, host: str, is_loopback: bool) -> None:
    """Also where the settings, or the machine's own table of names, let it look like this machine."""
    with bound(door, host):
        assert door.desk.is_loopback is is_loopback
        async with door.visitor() as visitor:
            answer = await visitor.get(f"{PREFIX}/counts")
        assert answer.status_code == (200 if is_loopback else 401)
