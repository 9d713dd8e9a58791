"""What the tests of webhooks share: somebody's server, whose answers they choose, and senders beside it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.model.url_policy import UrlPolicy, guard
from grns.postgres.database import Database
from grns.webhooks.deliveries import WebhookDelivery, read_delivery
from grns.webhooks.service import create_webhook
from grns.webhooks.signature import Secret
from tests.support.harness import eventually, settings_for
from tests.support.operations import SignalRecorder
from tests.support.store import ACTOR, fetch

HERE = "127.0.0.0/8"
GUARD = guard(HERE, allows_http=True)
FINE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass(frozen=True)
class Request:
    """What came."""

    line: str
    headers: dict[str, str]
    body: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """The id of its message."""
        return self.headers["webhook-id"]

    @property
    def document(self) -> dict[str, Any]:
        """What it tells."""
        said: dict[str, Any] = json.loads(self.body)
        return said

    def is_signed_with(self, secret: Secret | str) -> bool:
        """Say whether one of its signatures is of a secret: made by hand, as somebody else would."""
        shown = secret if isinstance(secret, str) else secret.reveal()
        key = base64.b64decode(shown.removeprefix("whsec_"))
        signed = f"{self.id}.{self.headers['webhook-timestamp']}.".encode() + self.body
        wanted = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        return f"v1,{wanted}" in self.headers["webhook-signature"].split(" ")


async def hanging(_request: Request, _writer: asyncio.StreamWriter) -> None:
    """Answer nothing, as long as the test lasts."""
    await asyncio.Event().wait()


Manner = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


def answering(answer: bytes) -> Manner:
    """Return the manner of one that always answers the same."""

    async def answer_it(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        with suppress(ConnectionError):
            await writer.drain()

    return answer_it


def status(code: int, *headers: str) -> Manner:
    """Return the manner of one that always answers a status."""
    lines = "".join(f"{header}\r\n" for header in headers)
    return answering(f"HTTP/1.1 {code} So\r\nContent-Length: 0\r\n{lines}\r\n".encode())


@asynccontextmanager
async def serving(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Have each connection handled, on a port of this machine, and leave none behind."""
    open_ones: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        us = asyncio.current_task()
        assert us is not None
        open_ones.add(us)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                await handle(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()
            open_ones.discard(us)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for one in open_ones:
            one.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)


class Receiver:
    """Somebody's server: it keeps what comes, and answers in its `manner`."""

    def __init__(self, manner: Manner | None = None) -> None:
        self.manner = manner or answering(FINE)
        self.requests: list[Request] = []
        self.port = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/hook"

    @asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
        """Be there for a while."""
        async with serving(self._serve, tls) as self.port:
            yield self

    async def has(self, count: int) -> list[Request]:
        """Wait until so many requests have come, and return them."""

        async def look() -> bool:
            return len(self.requests) >= count

        await eventually(look)
        return self.requests

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:] if line)}
        request = Request(head[0], headers, await reader.readexactly(int(headers["content-length"])))
        self.requests.append(request)
        await self.manner(request, writer)


@asynccontextmanager
async def sending(
    database: Database, *, tick_seconds: float = 0.02, **settings: Any
) -> AsyncIterator[SignalRecorder]:
    """Run a sender that may send to this machine; yields what it tells."""
    emitted = SignalRecorder()
    chosen = {
        "webhook_timeout_seconds": 5.0,
        "webhook_allow_http": True,
        "webhook_allow_networks": HERE,
        **settings,
    }
    app = App(settings_for(database.url, **chosen), (emitted,))
    sender = daemons.webhook_sender(app, database, app.transport("test"))
    sender.tick_seconds = tick_seconds
    turning = asyncio.create_task(sender.run())
    try:
        yield emitted
    finally:
        sender.stop()
        await turning


async def made(
    database: Database,
    url: str = "https://example.org/hook",
    *kinds: str,
    workspace: str = "default",
    by: UrlPolicy = GUARD,
) -> tuple[Secret, str]:
    """Let there be a webhook; returns its secret and its id."""
    secret, row = await create_webhook(
        database, workspace=workspace, url=url, kinds=kinds or ["evt.task.*"], guard=by, actor=ACTOR
    )
    return secret, row.id


async def settle(database: Database) -> int:
    """Let the log be settled as far as it goes, as a relay does; returns how far that is."""
    rows = await fetch(
        database, "update grns.relay_cursor set low = (select last_value from grns.events_seq) returning low"
    )
    low: int = rows[0]["low"]
    return low


async def deliveries(database: Database, webhook_id: str) -> list[dict[str, Any]]:
    """Return all that a webhook is told of, the oldest first."""
    rows = await fetch(
        database, "select * from grns.webhook_deliveries where webhook_id = $1 order by seq", webhook_id
    )
    return [dict(row) for row in rows]


async def fall_due(database: Database, webhook_id: str) -> None:
    """Let whatever waits for a webhook be due: the pause is over, and so is the lease of whoever had it."""
    await fetch(
        database,
        "update grns.webhook_deliveries set due_at = now() - interval '1 s'"
        " where webhook_id = $1 and due_at is not null",
        webhook_id,
    )


async def in_state(database: Database, webhook_id: str, seq: int, state: str, **also: Any) -> WebhookDelivery:
    """Wait until a delivery is in a state, and has these values besides; return it."""

    async def look() -> WebhookDelivery | None:
        found = await read_delivery(database, webhook_id, seq, workspace="default")
        wanted = {"state": state, **also}
        return found if {name: getattr(found, name) for name in wanted} == wanted else None

    found = await eventually(look)
    assert found is not None
    return found
