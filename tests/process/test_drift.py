"""A durable that is not ours keeps a worker from one lane, and from no more."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import nats

from grns.dev.servers import LocalNats
from grns.model import subjects
from grns.nats import JetStream
from grns.nats.provision import expected_durable
from grns.postgres.database import Database
from tests.support.harness import Fleet, all_in, eventually, manage, ready, settings_for, submit, submit_many


async def test_the_other_lanes_are_served_and_this_one_once_it_can_be(
    fleet: Fleet, database: Database, broker: LocalNats
) -> None:
    settings = settings_for(database.url, broker.url)
    transport = JetStream(settings, name="test")
    await transport.connect()
    await transport.provision()
    await transport.close()
    names = {
        subject: expected_durable(subject, settings)["name"]
        for subject in [
            subjects.shared_execute(),
            *(subjects.priority_subject("default", "worker", priority) for priority in subjects.PRIORITIES),
        ]
    }
    strange = subjects.priority_subject("default", "worker", 1)
    client = await nats.connect(broker.url)

    async def ask(operation: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        body = b"" if request is None else json.dumps(request).encode()
        answer: dict[str, Any] = json.loads((await client.request(f"$JS.API.{operation}", body)).data)
        assert "error" not in answer, answer
        return answer

    config = expected_durable(strange, settings) | {"filter_subject": "cmd.elsewhere"}
    await ask(
        f"CONSUMER.CREATE.GRNS_CMD.{names[strange]}",
        {"stream_name": "GRNS_CMD", "config": config, "action": "create"},
    )
    fleet.start("server")
    fleet.start("worker", "start", "tests.support.pools:pool")

    async def filters() -> set[str]:
        known = (await ask("CONSUMER.LIST.GRNS_CMD"))["consumers"]
        return {one["config"]["filter_subject"] for one in known}

    async def are_others_served() -> bool:
        return await filters() >= names.keys() - {strange}

    async def are_all_served() -> bool:
        return await filters() >= names.keys()

    await eventually(are_others_served, within_seconds=30)
    await ask(f"CONSUMER.DELETE.GRNS_CMD.{names[strange]}")
    await eventually(are_all_served, within_seconds=30)
    task = await submit(database, priority=1)
    await all_in(database, [task.id], within_seconds=30)
    await client.close()


async def test_tasks_run_though_the_durables_are_paused(
    fleet: Fleet, database: Database, broker: LocalNats
) -> None:
    """What is not delivered is found in Postgres by whoever has nothing else to do."""
    fleet.start("server")
    worker = fleet.start("worker", "start", "tests.support.pools:pool")
    await ready(database, worker)
    await all_in(database, await submit_many(database, 3), within_seconds=20)
    until = (datetime.now(UTC) + timedelta(minutes=10)).isoformat()
    for one in (await manage(broker.url, "CONSUMER.LIST.GRNS_CMD"))["consumers"]:
        await manage(broker.url, f"CONSUMER.PAUSE.GRNS_CMD.{one['name']}", {"pause_until": until})
    await all_in(database, await submit_many(database, 10), within_seconds=15)
    claimed = [fact for fact in fleet.facts_of(worker, "tasks_polled") if fact["tasks"]]
    assert sum(fact["tasks"] for fact in claimed) >= 10
