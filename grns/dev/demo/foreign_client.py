"""The stranger: a foreign system that publishes on the front door what nobody can accept."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import UTC, datetime

import nats
from nats.aio.client import Client
from nats.js.errors import NoStreamResponseError

FRONT_DOOR = "cmd.task.execute.v1"
MALFORMED = b'{"schema_version": "v1", "kind": "cmd.task.execute", "payload": {"task_id": "gr-'
_PAUSE_SECONDS = 0.1


def unknown_task() -> bytes:
    """Return a command without fault, for a task that does not exist."""
    return json.dumps(
        {
            "schema_version": "v1",
            "message_id": str(uuid.uuid4()),
            "trace_id": uuid.uuid4().hex,
            "causation_id": None,
            "kind": "cmd.task.execute",
            "emitted_at": datetime.now(UTC).isoformat(),
            "payload": {"task_id": "gr-nobody-knows-this-one", "target_agent_type": "digest"},
        }
    ).encode()


async def intrude(url: str) -> list[bytes]:
    """Publish one malformed message and one for an unknown task, once the stream is there."""
    bodies = [MALFORMED, unknown_task()]
    client = await nats.connect(url, name="a foreign system")
    try:
        for body in bodies:
            await _publish(client, body)
    finally:
        await client.close()
    return bodies


async def _publish(client: Client, body: bytes) -> None:
    stream = client.jetstream()
    while True:
        try:
            await stream.publish(FRONT_DOOR, body)
            return
        except NoStreamResponseError:
            await asyncio.sleep(_PAUSE_SECONDS)
