"""A broker that can be hurt, and transports on it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest

from grns.dev.servers import LocalNats
from grns.nats import JetStream
from grns.settings import Settings

LIMIT = 10.0


def freeze(server: LocalNats) -> None:
    """Freeze a server, and return when all its threads stand still: the signal arrives a little later."""
    server.freeze()
    deadline = time.monotonic() + LIMIT
    threads = f"{server.pid}/task/*/stat"
    while any(stat.read_text().rpartition(")")[2].split()[0] != "T" for stat in Path("/proc").glob(threads)):
        assert time.monotonic() < deadline, "it never stood still"
        time.sleep(0.001)


class Broker:
    """One broker with everything that can befall it."""

    def __init__(self, server: LocalNats) -> None:
        self._server = server

    @property
    def url(self) -> str:
        """Where clients find it."""
        return self._server.url

    async def start(self) -> None:
        await asyncio.to_thread(self._server.start)

    async def stop(self) -> None:
        await asyncio.to_thread(self._server.stop)

    async def kill(self) -> None:
        await asyncio.to_thread(self._server.kill)

    async def wipe(self) -> None:
        await asyncio.to_thread(self._server.wipe)

    def freeze(self) -> None:
        freeze(self._server)

    def thaw(self) -> None:
        self._server.thaw()

    async def manage(self, operation: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        """Do what an administrator does, and return the broker's answer."""
        client = await nats.connect(self.url)
        body = b"" if request is None else json.dumps(request).encode()
        answer = await client.request(f"$JS.API.{operation}", body, timeout=LIMIT)
        await client.close()
        found: dict[str, Any] = json.loads(answer.data)
        assert "error" not in found, found
        return found

    async def delete_durable(self, stream: str, name: str) -> None:
        await self.manage(f"CONSUMER.DELETE.{stream}.{name}")

    async def delete_stream(self, stream: str) -> None:
        await self.manage(f"STREAM.DELETE.{stream}")


TransportFactory = Callable[..., Awaitable[JetStream]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of this test's own."""
    with LocalNats(tmp_path / "nats") as server:
        yield Broker(server)


@pytest.fixture
def facts() -> list[tuple[str, dict[str, Any]]]:
    """What the transports of this test have told."""
    return []


def settings(broker: Broker, **changes: Any) -> Settings:
    """Return settings for this broker."""
    chosen: dict[str, Any] = {"nats_url": broker.url, "lease_seconds": 15.0, "nats_startup_seconds": LIMIT}
    return Settings(**(chosen | changes))


@pytest.fixture(params=["jetstream"])
async def transport_factory(
    request: pytest.FixtureRequest, broker: Broker, facts: list[tuple[str, dict[str, Any]]]
) -> AsyncIterator[TransportFactory]:
    """Make connected transports; keywords are settings. `provision=False` leaves the broker as it is."""
    made: list[JetStream] = []

    async def make(*, provision: bool = True, **changes: Any) -> JetStream:
        assert request.param == "jetstream"
        transport: JetStream = JetStream(
            settings(broker, **changes),
            name="conformance",
            on_fact=lambda name, fields: facts.append((name, fields)),
        )
        await transport.connect()
        made.append(transport)
        if provision:
            await transport.provision()
        return transport

    yield make
    broker.thaw()
    await asyncio.gather(*(transport.close() for transport in made))
