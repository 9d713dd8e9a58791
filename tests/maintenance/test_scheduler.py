"""The retry scheduler: what is due is queued, and a worker of its pool hears of it at once."""

from __future__ import annotations

import asyncio
from uuid import UUID

import nats
from nats.aio.msg import Msg

from grns.dev.servers import LocalNats
from grns.maintenance.scheduler import RetryScheduler
from grns.model.subjects import RELAY_NUDGE, task_nudge
from grns.model.task import command_id
from grns.nats import JetStream
from grns.postgres.database import Database
from tests.support.harness import eventually, settings_for, submit
from tests.support.store import fetch, log_of


async def _make_due(database: Database) -> None:
    await fetch(database, "update grns.tasks set next_attempt_at = now() where next_attempt_at is not null")


async def _heard_of_a_tick(database: Database, broker: LocalNats) -> list[tuple[str, bytes]]:
    """Let the scheduler tick, and return what it says on the broker."""
    heard: list[tuple[str, bytes]] = []

    async def note(message: Msg) -> None:
        heard.append((message.subject, message.data))

    listener = await nats.connect(broker.url)
    transport = JetStream(settings_for(database.url, broker.url), name="scheduler")
    try:
        await listener.subscribe("nudge.>", cb=note)
        await listener.flush()
        await transport.connect()
        await RetryScheduler(database=database, transport=transport, emit=lambda signal: None).tick()
        await eventually(lambda: asyncio.sleep(0, any(subject == RELAY_NUDGE for subject, _ in heard)))
    finally:
        await transport.close()
        await listener.close()
    return heard


async def test_tasks_that_are_due_are_named_to_a_worker_of_their_pool(
    database: Database, broker: LocalNats
) -> None:
    first = (await submit(database, delay_seconds=3600.0)).id
    second = (await submit(database, agent_type="scout", delay_seconds=3600.0)).id
    await _make_due(database)
    heard = await _heard_of_a_tick(database, broker)
    assert set(heard) == {
        (task_nudge("default", "worker"), first.encode()),
        (task_nudge("default", "scout"), second.encode()),
        (RELAY_NUDGE, b""),
    }


async def test_of_many_tasks_that_are_due_only_the_relay_hears(database: Database, broker: LocalNats) -> None:
    for _ in range(9):
        await submit(database, delay_seconds=3600.0)
    await _make_due(database)
    assert {subject for subject, _ in await _heard_of_a_tick(database, broker)} == {RELAY_NUDGE}


async def test_command_of_a_due_task_has_the_id_that_a_worker_makes_of_its_event(
    database: Database, broker: LocalNats
) -> None:
    task_id = (await submit(database, delay_seconds=3600.0)).id
    await _make_due(database)
    await _heard_of_a_tick(database, broker)
    queued, command = [row for row in await log_of(database, task_id) if row["version"] == 2]
    assert (queued["kind"], command["kind"]) == ("evt.task.queued", "cmd.task.execute")
    assert UUID(str(command["message_id"])) == command_id(UUID(str(queued["message_id"])))
    assert command["message_id"] != queued["message_id"]
