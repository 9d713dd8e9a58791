"""Subscriptions where several events share a message (`GRNS_RELAY_EVENTS_PER_MESSAGE`)."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator

import pytest

import grns
from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.client.client import Client
from grns.client.subscription import Event
from grns.dev.servers import LocalNats
from grns.maintenance.failover import find_losses
from grns.maintenance.failovers import Failover
from grns.postgres.database import Connection, Database
from tests.support.harness import eventually, is_relayed, manage, read_stream, settings_for
from tests.support.store import claim, fetch, finish

TASKS = 30  # one reading of the relay: no event is left alone in a message


@pytest.fixture
async def client(database: Database, broker: LocalNats) -> AsyncIterator[Client]:
    """A client, with the events of some tasks written before a relay with shared messages begins."""
    app = App(settings_for(database.url, broker.url, relay_events_per_message=16))
    connecting = grns.connect(database_url=database.url, nats_url=broker.url, lease_seconds=5.0)
    async with connecting as client, app.connections("relay") as theirs:
        for _ in range(TASKS):
            submitted = await client.submit("noop", pool="worker")
            await finish(database, await claim(database, submitted.id))
        await theirs[1].provision()  # a missing stream refuses the first rows, and they go one by one
        relay = daemons.relay(app, *theirs)
        relaying = asyncio.create_task(relay.run())
        yield client
        relay.stop()
        await relaying


async def test_subscription_to_shared_messages_handles_each_event_once_in_order(
    client: Client, database: Database, broker: LocalNats
) -> None:
    given: dict[str | None, list[int | None]] = defaultdict(list)
    failed: list[str] = []

    async def handle(event: Event, _connection: Connection) -> None:
        if event.task_id is not None and len(given) == 5 and not failed:
            failed.append(event.task_id)
            raise RuntimeError("once")
        given[event.task_id].append(event.version)

    subscription = await client.subscribe("me", handle)
    await eventually(lambda: _are(given, TASKS, 3))
    await subscription.stop()
    assert {tuple(sorted(filter(None, versions))) for versions in given.values()} == {(1, 2, 3)}
    assert {tuple(versions) for task_id, versions in given.items() if task_id not in failed} == {(1, 2, 3)}
    assert len(failed) == 1
    marks = await fetch(database, "select 1 from grns.processed_messages where consumer = 'me'")
    assert len(marks) == 3 * TASKS


async def test_relay_with_shared_messages_stores_few_messages_with_all_headers_inside(
    client: Client, database: Database, broker: LocalNats
) -> None:
    await eventually(lambda: is_relayed(database))
    state = (await manage(broker.url, "STREAM.INFO.GRNS_EVT"))["state"]
    assert state["messages"] <= 3 * TASKS // 4
    heard = await read_stream(broker.url, "GRNS_EVT")
    rows = await fetch(
        database,
        "select seq, version, task_id, workspace, message_id::text as id from grns.events"
        " where kind like 'evt.%'",
    )
    assert {
        (
            one.body["seq"],
            one.body["version"],
            one.body["task_id"],
            one.body["workspace"],
            one.body["message_id"],
        )
        for one in heard
    } == {tuple(row) for row in rows}
    assert set(Counter(one.body["message_id"] for one in heard).values()) == {1}


async def test_failover_finds_each_lost_event_of_a_shared_message(
    client: Client, database: Database, broker: LocalNats
) -> None:
    await eventually(lambda: is_relayed(database))
    lost = await fetch(
        database,
        "delete from grns.events where kind = 'evt.task.claimed' returning message_id, task_id, version",
    )
    app = App(settings_for(database.url, broker.url))
    async with app.connections("verify") as (connected, transport):
        (now,) = await fetch(database, "select now() as now")
        failover = Failover(1, now["now"], now["now"], "1", 1, "1", 2)
        losses = await find_losses(connected, transport, [failover])
    assert {(one.message_id, one.task_id, one.version) for one in losses.lost} == {
        (row["message_id"], row["task_id"], row["version"]) for row in lost
    }
    assert len(losses.lost) == TASKS


async def _are(given: dict[str | None, list[int | None]], tasks: int, events: int) -> bool:
    return len(given) == tasks and all(len(set(versions)) == events for versions in given.values())
