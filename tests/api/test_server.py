"""The API's port: what does not become a request, and who could come in there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any

import httpx2
import pytest

from grns.api import connection
from grns.api.invitation import Invitation
from grns.api.route import PREFIX
from grns.api.server import ApiServer
from grns.postgres.database import Database
from grns.telemetry.service_signals import RequestCrashed
from grns.web.app import make_site
from tests.support.api import OURS, Door, good, serving
from tests.support.harness import LIMIT_SECONDS, eventually
from tests.support.store import fetch, is_waiting_for_lock, stranger

GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = (
    b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000\r\n\r\n"
)
STREAM = (
    b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
    b"Authorization: Bearer %s\r\n\r\n"
)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at connections often."""
    monkeypatch.setattr(connection, "_LOOK_SECONDS", 0.1)


@pytest.fixture
async def server(door: Door) -> AsyncIterator[ApiServer]:
    """A server on a real port."""
    async with serving(door.context, door.api) as found:
        async with httpx2.AsyncClient(base_url=found.url, timeout=LIMIT_SECONDS) as visitor:
            good(await visitor.get("/livez"))
        yield found


@pytest.fixture
async def site(door: Door) -> AsyncIterator[ApiServer]:
    """The API and the dashboard on a real port."""
    async with serving(door.context, make_site(door.context)) as found:
        yield found


async def opened(server: ApiServer, **said: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return await asyncio.open_connection(host, int(port), **said)


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
async def test_an_answer_that_takes_long_is_waited_for(server: ApiServer, door: Door) -> None:
    reader, writer = await opened(server)
    writer.write(STREAM % (await door.key()).encode())
    async with asyncio.timeout(LIMIT_SECONDS):
        await reader.readuntil(b"retry: 1000")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await reader.readuntil(b"never")
    assert not reader.at_eof()
    writer.close()


async def _is_alone(server: ApiServer) -> bool:
    return not server._server.server_state.connections


async def asked(server: ApiServer, what: bytes, **said: Any) -> tuple[bytes, asyncio.StreamReader, Any]:
    """Connect and ask; return the first line of the answer, and the connection."""
    reader, writer = await opened(server, **said)
    writer.write(what)
    async with asyncio.timeout(LIMIT_SECONDS):
        return await reader.readuntil(b"\r\n"), reader, writer


@pytest.fixture
async def alone(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    """A server without connections, and with room for two."""
    monkeypatch.setattr(connection, "_MOST", 2)
    await eventually(partial(_is_alone, server))
    return server


async def test_connection_beyond_the_most_closes_the_one_idle_for_longest(alone: ApiServer) -> None:
    """M9: idle connections, without a key, kept everybody else out."""
    _, first, first_writer = await asked(alone, GET)
    silent, silent_writer = await opened(alone)
    said, second, second_writer = await asked(alone, GET)
    assert b"200 OK" in said
    assert await end_of(silent) == b"", "it has never asked for anything"
    first_writer.write(GET)
    async with asyncio.timeout(LIMIT_SECONDS):
        for _ in range(2):
            await first.readuntil(b'{"status":"ok"}')
    said, _, third_writer = await asked(alone, GET)
    assert b"200 OK" in said
    assert b'{"status":"ok"}' in await end_of(second), "it is idle for longer than the first"
    for one in (first_writer, silent_writer, second_writer, third_writer):
        one.close()


@pytest.mark.parametrize("reserved", [5, 0])
async def test_connection_beyond_the_most_with_all_at_work_is_for_probes(
    alone: ApiServer, door: Door, monkeypatch: pytest.MonkeyPatch, reserved: int
) -> None:
    """M9: a liveness probe failed with them, and an orchestrator then kills relay and reaper."""
    monkeypatch.setattr(connection, "_RESERVED", reserved)
    key = (await door.key()).encode()
    writers = [(await asked(alone, STREAM % key))[2] for _ in range(2)]
    if reserved:
        for _ in range(2 * reserved):
            for probe in (GET, GET.replace(b"/livez", b"/readyz")):
                said, _, writer = await asked(alone, probe)
                assert b"200 OK" in said
                writers.append(writer)
        said, reader, writer = await asked(alone, GET.replace(b"/livez", b"/api/v1/counts"))
        assert b"429" in said
        assert b"too_many_requests" in await end_of(reader)
    else:
        reader, writer = await opened(alone)
        assert await end_of(reader) == b""
    for one in (*writers, writer):
        one.close()


async def test_connections_of_one_address_beyond_its_most_leave_room_for_others(
    alone: ApiServer, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M9: one address that has all of its connections at work keeps no other one out."""
    monkeypatch.setattr(connection, "_MOST", 10)
    monkeypatch.setattr(connection, "_MOST_OF_PEER", 2)
    key = (await door.key()).encode()
    writers = [(await asked(alone, STREAM % key))[2] for _ in range(2)]
    counts = GET.replace(b"/livez", b"/api/v1/counts")
    for address, status in (("127.0.0.1", b"429"), ("127.0.0.2", b"401")):
        said, _, writer = await asked(alone, counts, local_addr=(address, 0))
        assert status in said
        writers.append(writer)
    for one in writers:
        one.close()


async def test_request_with_two_lengths_is_refused_and_the_connection_closed(server: ApiServer) -> None:
    """L10: a proxy that goes by the other length took what followed for a request of somebody else."""
    both = POST.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    said, reader, writer = await asked(server, both + GET)
    assert b"400" in said
    assert b"HTTP/1.1" not in await end_of(reader)
    writer.close()


@pytest.mark.parametrize("path", ["/filters", "/dead-letters/export", "/tasks/count?saved=some"])
@pytest.mark.parametrize("is_bound", [True, False], ids=["tenant", "everywhere"])
async def test_request_that_only_reads_ends_with_its_connection(
    door: Door, server: ApiServer, shared: Database, path: str, is_bound: bool
) -> None:
    """M9: what was asked for was carried out, and kept others waiting, although nobody was there any more."""
    shown = await door.key("read", workspace=OURS if is_bound else None)
    line = f"GET {PREFIX}{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {shown}\r\n\r\n"
    async with stranger(shared) as held:
        await held.execute("lock table grns.saved_filters, grns.tasks in access exclusive mode")
        for _ in range(3):
            _, writer = await opened(server)
            writer.write(line.encode())
            await eventually(lambda: is_waiting_for_lock(shared))
            writer.close()
            await eventually(lambda: _nobody_waits(shared))
        await held.execute("rollback")
    (roles,) = await fetch(shared, "select current_user = session_user as is_itself")
    assert roles["is_itself"]
    async with door.visitor(shown) as visitor:
        good(await visitor.get(f"{PREFIX}/filters"))
    await eventually(partial(_is_alone, server))
    assert not door.emitted.of(RequestCrashed)


async def _nobody_waits(database: Database) -> bool:
    return not await is_waiting_for_lock(database)


class Forwarder:
    """A proxy of the simplest kind: each byte goes on to the server, and back. It adds no header."""

    def __init__(self, server: ApiServer) -> None:
        self._target = server._socket.getsockname()
        self._busy: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> str:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._listener.sockets[0].getsockname()
        return f"http://{host}:{port}"

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        await asyncio.gather(*self._busy)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, on = await asyncio.open_connection(*self._target)
        for source, sink in ((reader, on), (back, writer)):
            task = asyncio.create_task(self._pass(source, sink))
            self._busy.add(task)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while part := await source.read(65536):
                sink.write(part)
                await sink.drain()
        sink.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "upstream", "grns.example.com", None])
@pytest.mark.parametrize("has_key", [False, True])
async def test_request_through_a_proxy_without_a_key_is_denied(
    site: ApiServer, door: Door, host: str | None, has_key: bool
) -> None:
    """H3: whoever reached a proxy that adds no header was the owner of the installation."""
    if has_key:
        await door.key()
    headers = {} if host is None else {"Host": host}
    async with (
        Forwarder(site) as url,
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=LIMIT_SECONDS) as visitor,
    ):
        assert (await visitor.get("/livez")).status_code == 200
        assert (await visitor.get(f"{PREFIX}/counts")).status_code == 401
        paused = await visitor.post(f"{PREFIX}/pools/digest/pause", json={"reason": "from outside"})
        assert paused.status_code == 401
        order = {"name": "mine", "scopes": ["admin"], "all_workspaces": True}
        assert (await visitor.post(f"{PREFIX}/keys", json=order)).status_code == 401
        for path in ("/", "/keys", "/tasks"):
            page = await visitor.get(path)
            assert (page.status_code, page.headers["location"].partition("?")[0]) == (303, "/login")


async def test_start_without_a_key_prints_how_to_create_the_first_one(
    door: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    """H3: the process that serves says how the first key is made: on stderr, and in no signal."""
    said = ""
    async with serving(door.context, door.api) as found:

        async def is_said() -> bool:
            nonlocal said
            said += capsys.readouterr().err
            return f"{found.url}/login?token={door.context.invitation.token}\n" in said

        await eventually(is_said)
        assert door.context.invitation.token not in repr(door.emitted.seen)


@pytest.mark.parametrize("reason", ["a key", "an invitation"])
async def test_start_with_a_key_prints_nothing(
    door: Door, capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    if reason == "a key":
        await door.key()
    else:
        door.context.invitation = Invitation(key="grns_of_dev")
    async with serving(door.context, door.api):
        assert "token" not in capsys.readouterr().err
