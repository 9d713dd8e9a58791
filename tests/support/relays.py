"""Relays that run in the test's own process, and what they tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.postgres.database import Database
from grns.settings import load
from grns.telemetry.signal import Signal
from tests.support.store import fetch


class Note:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.emitted: list[Signal] = []

    def receive(self, signal: Signal) -> None:
        """Take note of one signal."""
        self.emitted.append(signal)

    async def has_told(self, kind: type[Signal]) -> bool:
        """Tell whether there was one of a kind."""
        return any(isinstance(signal, kind) for signal in self.emitted)


@asynccontextmanager
async def relaying(count: int = 1) -> AsyncIterator[Note]:
    """Run relays meanwhile, as the environment says, each with connections of its own."""
    note = Note()
    async with AsyncExitStack() as resources:
        for number in range(count):
            app = App(load(), (note,))
            database, transport = await resources.enter_async_context(app.connections(f"test {number}"))
            relay = daemons.relay(app, database, transport)
            resources.push_async_callback(asyncio.wait_for, asyncio.create_task(relay.run()), 30)
            resources.callback(relay.stop)
        yield note


async def knows_the_streams(database: Database) -> bool:
    """Tell whether a relay has looked at them, and written down which ones they are."""
    (row,) = await fetch(database, "select evt_epoch, dlq_epoch from grns.relay_cursor")
    return None not in (row["evt_epoch"], row["dlq_epoch"])
