"""A client in any language: it knows the wire and the SQL function, and nothing of this package.

Messages are written by hand here, on purpose: what `grns` would make is not the point.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import asyncpg
import nats
import pytest
from nats.aio.client import Client as Nats
from nats.js.errors import Error as JetStreamError

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.support.harness import Fleet, Heard, all_in, check_stories, eventually, read_stream, ready

FRONT_DOOR = "cmd.task.execute.v1"
TASKS = 6
PRIORITY_SUBJECTS = 4


@pytest.fixture
async def foreign(broker: LocalNats) -> AsyncIterator[Nats]:
    """A plain connection to the broker."""
    client = await nats.connect(broker.url)
    yield client
    await client.close()


def command(task_id: str, agent_type: str) -> dict[str, object]:
    """Return a command as anybody may write it."""
    return {
        "schema_version": "v1",
        "message_id": str(uuid.uuid4()),
        "trace_id": "tr-8f678c2a",
        "causation_id": None,
        "kind": "cmd.task.execute",
        "emitted_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "payload": {"task_id": task_id, "target_agent_type": agent_type, "reason": "new_task"},
    }


async def create(database: Database, agent_type: str) -> list[str]:
    """Create tasks by the SQL function, on a connection of one's own."""
    connection = await asyncpg.connect(database.url)
    try:
        rows = await connection.fetch(
            "select grns.submit_task('noop', '{}', $1) as id from generate_series(1, $2)", agent_type, TASKS
        )
    finally:
        await connection.close()
    return [row["id"] for row in rows]


async def publish(foreign: Nats, task_ids: list[str], agent_type: str, *, with_header: bool) -> list[str]:
    """Ask for tasks to be run; returns the ids of the messages."""
    said = [command(task_id, agent_type) for task_id in task_ids]
    for document in said:
        headers = {"Nats-Msg-Id": str(document["message_id"])} if with_header else None
        await foreign.jetstream().publish(FRONT_DOOR, json.dumps(document).encode(), headers=headers)
    return [str(document["message_id"]) for document in said]


async def is_open(foreign: Nats) -> bool:
    """Say whether a worker listens in all lanes and at the front door: until then it asks Postgres too."""
    try:
        found = await foreign.jetstream().consumers_info("GRNS_CMD")
    except (JetStreamError, nats.errors.Error):
        return False
    return len(found) == PRIORITY_SUBJECTS + 1 and all(consumer.num_waiting for consumer in found)


@pytest.mark.parametrize("with_header", [True, False], ids=["with_id", "without_id"])
async def test_a_task_runs_with_nothing_but_workers_and_its_events_come_with_the_relay(
    fleet: Fleet, database: Database, broker: LocalNats, foreign: Nats, with_header: bool
) -> None:
    debug = {"GRNS_LOG_LEVEL": "debug", "GRNS_POLL_MAX_SECONDS": "2"}
    worker = fleet.start("worker", "start", "tests.support.pools:pool", GRNS_POLL_AFTER_SECONDS="60", **debug)
    await ready(database, worker)
    await eventually(lambda: is_open(foreign))

    # For its own agent type: through the front door, long before its floor would have found it.
    ours = await create(database, "worker")
    messages = await publish(foreign, ours, "worker", with_header=with_header)
    await all_in(database, ours, within_seconds=10)
    claimed = {fact["task_id"]: fact["source"] for fact in fleet.facts_of(worker, "task_claimed")}
    assert claimed == dict.fromkeys(ours, "shared")
    stories = await check_stories(database, ours)
    for task_id, message_id in zip(ours, messages, strict=True):
        assert str(stories[task_id][1]["causation_id"]) == message_id, "the claim answers the command"

    # For another's: whoever takes it in sends it on.
    scout = fleet.start("worker", "start", "tests.support.scouts:pool", **debug)
    await ready(database, scout)
    others = await create(database, "scout")
    await publish(foreign, others, "scout", with_header=with_header)
    rows = await all_in(database, others, within_seconds=15)
    assert {row["result"] for row in rows.values()} == {'"scout"'}
    await check_stories(database, others)
    assert not await read_stream(broker.url, "GRNS_EVT"), "workers publish nothing"

    fleet.start("daemon", "relay")
    await eventually(lambda: _is_told(broker, 3 * len(ours + others)))
    heard = await read_stream(broker.url, "GRNS_EVT")
    for task_id in ours + others:
        _check([one for one in heard if one.body["payload"]["task_id"] == task_id])
    async with database.connection() as connection:
        assert await connection.fetchval("select count(*) from grns.dead_letters") == 0


async def _is_told(broker: LocalNats, count: int) -> bool:
    return len(await read_stream(broker.url, "GRNS_EVT")) >= count


def _check(heard: list[Heard]) -> None:
    """Check one task's events, by the words of the protocol."""
    assert [one.subject for one in heard] == [
        "evt.task.queued.v1", "evt.task.claimed.v1", "evt.task.completed.v1",
    ]  # fmt: skip
    for version, one in enumerate(heard, start=1):
        assert one.subject == f"{one.body['kind']}.v1"
        assert one.headers["Nats-Msg-Id"] == one.body["message_id"]
        assert one.headers["Grns-Version"] == str(version)
        assert set(one.body) == {
            "schema_version", "message_id", "trace_id", "causation_id", "kind", "emitted_at", "payload",
        }  # fmt: skip
        assert one.body["schema_version"] == "v1"
        assert one.body["emitted_at"].endswith("Z")
    queued, claimed, completed = [one.body["payload"] for one in heard]
    assert set(queued) == {"task_id", "task_type", "agent_type", "priority", "reason"}
    assert set(claimed) == {"task_id", "agent_id", "attempt", "lease_until", "queued_ms"}
    assert set(completed) - {"result"} == {
        "task_id", "task_type", "agent_type", "agent_id", "attempt", "result_ref", "duration_ms",
    }  # fmt: skip
    assert completed["result_ref"] == f"db://tasks/{queued['task_id']}"
    assert len({one.body["trace_id"] for one in heard}) == 1
