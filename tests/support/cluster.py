"""Three brokers that are one: for tests of what a cluster does, and of what it does to its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nats.errors

from grns.dev.servers import LocalNats
from grns.dev.servers.port import HOST, free_port
from tests.support.harness import eventually, manage

# nats-server takes 4 to 9 s of silence for the death of a leader.
ELECTED_SECONDS = 30.0


def cluster(directory: Path, count: int = 3, *, is_told: bool = False) -> list[LocalNats]:
    """Return brokers that will find one another; none of them is started.

    Clients are not told of the others, unless `is_told`. Then there are no tokens: nats-py has none for a
    server that it was told of.
    """
    secret = "" if is_told else ", no_advertise: true"
    ports = [free_port() for _ in range(count)]
    routes = ", ".join(f'"nats://{HOST}:{port}"' for port in ports)
    return [
        LocalNats(
            directory / f"nats-{number}",
            has_token=not is_told,
            extra_config=f"""
                cluster {{ name: tests, listen: {HOST}:{port}, routes: [{routes}]{secret} }}
            """,
        )
        for number, port in enumerate(ports, start=1)
    ]


class Cluster:
    """Asks the brokers about one another, and does what their administrator does."""

    def __init__(self, brokers: Sequence[LocalNats]) -> None:
        self.brokers = brokers

    @property
    def urls(self) -> str:
        """The URL for those who may use any of them."""
        return ",".join(broker.url for broker in self.brokers)

    async def start(self, brokers: Sequence[LocalNats] = ()) -> None:
        """Start all of them, or some, at once."""
        await asyncio.gather(*(asyncio.to_thread(broker.start) for broker in brokers or self.brokers))

    async def info(self, stream: str) -> dict[str, Any] | None:
        """Return what a stream says of itself, None where nobody leads it (or knows of it)."""
        for broker in self.brokers:
            if broker.running:
                try:
                    found = await manage(broker.url, f"STREAM.INFO.{stream}")
                except (nats.errors.Error, AssertionError):
                    continue
                return found if (found.get("cluster") or {}).get("leader") else None
        return None

    async def leader(self, stream: str) -> LocalNats:
        """Wait until somebody leads a stream, and return who."""

        async def look() -> dict[str, Any] | None:
            return await self.info(stream)

        found = await eventually(look, within_seconds=ELECTED_SECONDS, every=0.1)
        assert found is not None
        return next(broker for broker in self.brokers if broker.name == found["cluster"]["leader"])

    async def step_down(self, stream: str) -> None:
        """Have a stream led by another broker."""
        await manage((await self.leader(stream)).url, f"STREAM.LEADER.STEPDOWN.{stream}")

    async def is_whole(self, *streams: str) -> bool:
        """Tell whether all brokers have everything that these streams hold."""
        for stream in streams:
            found = await self.info(stream)
            replicas = (found or {}).get("cluster", {}).get("replicas") or []
            if len(replicas) < len(self.brokers) - 1:
                return False
            if not all(one["current"] and not one.get("offline") for one in replicas):
                return False
        return True
