"""The janitor's work on rejected messages, against Postgres and a broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import nats

from grns.app import App
from grns.assembly import daemons
from grns.local import LocalNats
from grns.store.database import Database
from grns.telemetry.metrics import MetricsLeaf
from tests.harness import eventually, settings_for
from tests.test_store_kit import fetch

pytest_plugins = ["tests.test_store_kit"]


@asynccontextmanager
async def janitor(database: Database, broker: LocalNats, **settings: Any) -> AsyncIterator[MetricsLeaf]:
    """Run a janitor; yields its metrics."""
    metrics = MetricsLeaf()
    app = App(settings_for(database.url, broker.url, janitor_seconds=0.05, **settings), (metrics,))
    transport = app.transport("test")
    await transport.connect()
    try:
        await transport.provision()
        service = daemons.janitor(app, database, transport)
        running = asyncio.create_task(service.run())
        yield metrics
        service.stop()
        await running
    finally:
        await transport.close()


async def test_janitor_files_unserved_messages_under_the_workspace_of_their_subject(
    shared: Database, broker: LocalNats
) -> None:
    """M2: a command of one workspace that has no consumer is not shown to the workspace `default`."""
    wanted = {
        "cmd.task.foo.v1.acme": "acme",
        "cmd.agent.v1.other.v1.acme": "acme",
        "cmd.task.foo.v1": "default",
        "cmd.task.foo.v1.a%b": "_unknown",
    }
    async with janitor(shared, broker, unserved_seconds=0.5):
        publisher = await nats.connect(broker.url)
        for subject in wanted:
            await publisher.jetstream().publish(subject, b"secret")
        await publisher.close()

        async def kept() -> bool:
            rows = await fetch(shared, "select subject, workspace from grns.dead_letters")
            return {row["subject"]: row["workspace"] for row in rows} == wanted

        await eventually(kept)
    events = await fetch(
        shared, "select workspace from grns.events where kind = 'dlq.message.rejected' order by workspace"
    )
    assert [row["workspace"] for row in events] == ["_unknown", "acme", "acme", "default"]
