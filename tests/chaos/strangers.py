"""What strangers do with a plain client: to Postgres, to the broker, and on the bus."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import asyncpg
import nats
from nats.aio.client import Client

if TYPE_CHECKING:
    from tests.chaos.stage import Stage

# What somebody meets who asks servers that may be away.
AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection that is cut at the wrong moment
    nats.errors.Error,
)
_STREAMS = ("GRNS_CMD", "GRNS_EVT", "GRNS_DLQ")
_RUBBISH = (
    b"",
    b"null",
    b"{}",
    b"\xff\xfe",
    b'{"message_id": 1}',
    b"[" * 5000,
    b'{"a": 1}{"b": 2}',
    b"\x1f\x8b\x08",
)


class NothingDone(Exception):
    """There was nothing to do it to: this was no fault."""


async def connect(url: str) -> Client:
    """Connect to one of the brokers (their URLs, with commas between), or raise; without trying again."""

    async def say_nothing(_error: Exception) -> None: ...

    return await nats.connect(url.split(","), allow_reconnect=False, connect_timeout=1, error_cb=say_nothing)


async def open_transaction(url: str) -> tuple[list[str], Callable[[], Awaitable[None]]]:
    """Write something and lock some tasks, and leave it at that; returns which ones, and what ends it."""
    connection = await asyncpg.connect(url, timeout=2, command_timeout=2)
    await connection.execute("begin")
    await connection.execute("select pg_current_xact_id()")
    # Chosen before they are locked: a row that turns out to be claimed meanwhile is locked nevertheless.
    rows = await connection.fetch("select id from grns.tasks where queued_at is not null limit 3")
    ids = [row["id"] for row in rows]
    await connection.fetch("select from grns.tasks where id = any($1) for update skip locked", ids)

    async def end() -> None:
        connection.terminate()

    return ids, end


async def some_tasks(url: str, count: int) -> list[str]:
    """Return ids of tasks, the newest ones."""
    connection = await asyncpg.connect(url, timeout=2, command_timeout=2)
    try:
        rows = await connection.fetch("select id from grns.tasks order by id desc limit $1", 10 * count)
    finally:
        connection.terminate()
    return [row["id"] for row in random.sample(rows, min(count, len(rows)))]


async def publish_commands(url: str, task_ids: list[str], chance: random.Random) -> None:
    """Publish `cmd.task.execute` for these tasks, to the front door or a lane, with or without an id."""
    client = await connect(url)
    try:
        for task_id in task_ids:
            message_id = str(uuid.uuid4())
            payload = {"task_id": task_id, "target_agent_type": "worker", "reason": "new_task"}
            subject = chance.choice(("cmd.task.execute.v1", "cmd.task.execute.v1.default.scout.p1"))
            headers = {"Nats-Msg-Id": message_id} if chance.random() < 0.5 else None
            await client.publish(
                subject, order("cmd.task.execute", payload, message_id=message_id), headers=headers
            )
        await client.flush(timeout=2)
    finally:
        await client.close()


async def publish_orders(client: Client, wanted: dict[str, Any]) -> None:
    """Ask for a task by a command and by a request, which are one message, and for the end of no task."""
    submit = order("cmd.task.submit", wanted, message_id=str(uuid.uuid4()))
    cancel = order("cmd.task.cancel", {"task_id": "gr-nobody"}, message_id=str(uuid.uuid4()))
    await client.publish("cmd.task.submit.v1", submit)
    await client.publish("req.task.submit.v1", submit, reply=client.new_inbox())
    await client.publish("req.task.cancel.v1", cancel, reply=client.new_inbox())


def order(kind: str, payload: dict[str, Any], *, message_id: str) -> bytes:
    """Return a message that asks for something, as anybody may write it."""
    envelope = {
        "schema_version": "v1",
        "message_id": message_id,
        "trace_id": "chaos",
        "causation_id": None,
        "kind": kind,
        "emitted_at": datetime.now(UTC).isoformat(),
        "payload": payload,
    }
    return json.dumps(envelope).encode()


async def publish_rubbish(client: Client, chance: random.Random) -> None:
    """Publish what is no command."""
    for _ in range(5):
        await client.publish("cmd.task.execute.v1", chance.choice(_RUBBISH))
    await client.flush(timeout=2)


async def purge(client: Client, stage: Stage, chance: random.Random) -> None:
    """Purge a stream, as an admin may; of events only those that have been heard."""
    name = chance.choice(_STREAMS)
    stream = client.jetstream(timeout=2)
    if name == "GRNS_CMD":
        await stream.purge_stream(name)
        return
    heard = stage.heard(name)
    if heard is None or heard[0] != str((await stream.stream_info(name)).created):
        raise NothingDone
    await stream.purge_stream(name, seq=heard[1] + 1)


async def delete_stream(client: Client, _stage: Stage, chance: random.Random) -> str:
    """Delete a stream; returns which one."""
    name = chance.choice(_STREAMS)
    await client.jetstream(timeout=2).delete_stream(name)
    return name


async def delete_commands(client: Client, _stage: Stage, _chance: random.Random) -> None:
    """Delete the last commands, one by one."""
    stream = client.jetstream(timeout=2)
    last = (await stream.stream_info("GRNS_CMD")).state.last_seq
    for seq in range(max(1, last - 20), last + 1):
        with suppress(nats.js.errors.APIError):
            await stream.delete_msg("GRNS_CMD", seq)


async def step_down(client: Client, _stage: Stage, chance: random.Random) -> None:
    """Let another server lead a stream."""
    await _manage(client, f"STREAM.LEADER.STEPDOWN.{chance.choice(_STREAMS)}", {})


async def delete_durable(client: Client, _stage: Stage, chance: random.Random) -> None:
    """Delete a durable of the commands."""
    stream = client.jetstream(timeout=2)
    durables = [info.name for info in await stream.consumers_info("GRNS_CMD")]
    if not durables:
        raise NothingDone
    await stream.delete_consumer("GRNS_CMD", chance.choice(durables))


async def pause_durable(client: Client, _stage: Stage, chance: random.Random) -> None:
    """Pause a durable for some seconds."""
    durables = [info.name for info in await client.jetstream(timeout=2).consumers_info("GRNS_CMD")]
    if not durables:
        raise NothingDone
    until = datetime.fromtimestamp(datetime.now(UTC).timestamp() + chance.uniform(1, 8), UTC)
    await _manage(
        client, f"CONSUMER.PAUSE.GRNS_CMD.{chance.choice(durables)}", {"pause_until": until.isoformat()}
    )


async def _manage(client: Client, operation: str, request: dict[str, str]) -> None:
    answer = await client.request(f"$JS.API.{operation}", json.dumps(request).encode(), timeout=2)
    if "error" in json.loads(answer.data):
        raise NothingDone
