"""The janitor's work on rejected messages, against Postgres and a broker."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import nats

from grns.access.workspaces import create_workspace
from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.dead_letters.store import HEAD_BYTES, RejectedMessage, store_rejected
from grns.dev.servers import LocalNats
from grns.maintenance.janitor import expire_messages
from grns.model import subjects
from grns.model.events import PAYLOADS, MessageRejected
from grns.postgres.database import Database
from grns.telemetry.metrics_listener import MetricsListener
from tests.support.harness import eventually, settings_for
from tests.support.store import fetch, stranger


@asynccontextmanager
async def janitor(database: Database, broker: LocalNats, **settings: Any) -> AsyncIterator[MetricsListener]:
    """Run a janitor; yields its metrics."""
    metrics = MetricsListener()
    app = App(settings_for(database.url, broker.url, janitor_interval_seconds=0.05, **settings), (metrics,))
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
    async with janitor(shared, broker, unserved_after_seconds=0.5):
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


async def reject(database: Database, subject: str, number: int, body: bytes = b"x", **headers: str) -> None:
    """Keep one rejected message, the latest of all."""
    corpse = RejectedMessage("bad_json", "no JSON", subject, "GRNS_CMD", number, 1, headers, body)
    await store_rejected(database, [corpse])


async def test_a_rejected_envelope_keeps_its_trace_and_is_the_cause_of_its_event(shared: Database) -> None:
    body = (
        b'{"schema_version": "v1", "message_id": "7dc6e5af-0776-4f37-8f16-5767f5f9471f", "trace_id": "tr-1",'
        b' "kind": "cmd.task.execute", "emitted_at": "2026-02-06T21:00:00Z", "payload": {"task_id": "gr-1"}}'
    )
    for number, said in enumerate((body, b"no JSON")):
        await reject(shared, "cmd.task.execute.v1", number, said)
    events = await fetch(
        shared,
        "select trace_id, causation_id::text as cause, message_id::text as id from grns.events order by seq",
    )
    assert [(row["trace_id"], row["cause"]) for row in events] == [
        ("tr-1", "7dc6e5af-0776-4f37-8f16-5767f5f9471f"),
        (events[1]["id"].replace("-", ""), None),
    ]


async def kept(database: Database) -> dict[str, list[int]]:
    """Return the places in the stream of the messages that are there, oldest first, by workspace."""
    rows = await fetch(database, "select workspace, stream_seq from grns.dead_letters order by created_at")
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["workspace"], []).append(row["stream_seq"])
    return found


async def test_janitor_deletes_closed_messages_after_their_retention(
    shared: Database, broker: LocalNats
) -> None:
    """M7: closed messages go after `GRNS_DEAD_RETENTION_DAYS`, open ones stay."""
    for number in range(6):
        await reject(shared, "cmd.task.submit.v1", number)
    states = ("new", "redriven", "discarded")
    for number in range(6):
        await fetch(
            shared,
            "update grns.dead_letters set state = $2, updated_at = now() - $3 * interval '1 day'"
            " where stream_seq = $1",
            number, states[number % 3], 8 if number < 3 else 6,
        )  # fmt: skip
    async with janitor(shared, broker, dead_retention_days=7):

        async def are_deleted() -> bool:
            return await kept(shared) == {"default": [0, 3, 4, 5]}

        await eventually(are_deleted)


async def test_janitor_expires_the_oldest_open_messages_beyond_the_bound(
    shared: Database, broker: LocalNats
) -> None:
    """M7: each workspace has its own bound, those that nobody created share one, and each loss is logged."""
    await create_workspace(shared, "acme", actor=None)
    number = 0
    for workspace in ("default", "acme", "ghost", "phantom"):
        for _ in range(3):
            number += 1
            await reject(shared, subjects.message(subjects.SUBMIT, workspace), number)
    await fetch(shared, "update grns.dead_letters set state = 'discarded' where stream_seq = 1")
    async with janitor(shared, broker, rejected_max_messages=2) as metrics:

        async def are_expired() -> bool:
            return await kept(shared) == {"default": [1, 2, 3], "acme": [5, 6], "phantom": [11, 12]}

        await eventually(are_expired)

        async def are_counted() -> bool:
            return metrics.registry.get_sample_value("grns_rejected_messages_expired_total") == 5

        await eventually(are_counted)
    events = await fetch(
        shared,
        "select workspace, actor, payload from grns.events"
        " where kind = 'evt.dead_letter.expired' order by seq",
    )
    assert sorted(row["workspace"] for row in events) == ["acme", "ghost", "ghost", "ghost", "phantom"]
    for row in events:
        told = PAYLOADS["evt.dead_letter.expired"].model_validate_json(row["payload"]).model_dump()
        assert (told["reason"], told["body_size"], row["actor"]) == ("bad_json", 1, None)
        assert told["body_sha256"] == hashlib.sha256(b"x").hexdigest()


async def test_expire_messages_over_the_bytes_deletes_pages_and_leaves_locked_rows(shared: Database) -> None:
    """M7: bytes are bounded too; a message that is being sent again is not deleted."""
    for number in range(5):
        await reject(shared, "cmd.task.submit.v1", number, b"x" * 1000, a="b")

    async def expire(limit: int) -> int:
        return await expire_messages(shared, limit, max_messages=100, max_bytes=2500)

    async with stranger(shared) as connection:
        await connection.execute("select from grns.dead_letters where stream_seq = 0 for update")
        assert await expire(1) == 0, "the page is the locked one"
        assert await expire(10) == 2
        assert await kept(shared) == {"default": [0, 3, 4]}
    assert [await expire(1), await expire(1)] == [1, 0]
    assert await kept(shared) == {"default": [3, 4]}


async def test_rejected_event_has_the_first_bytes_and_the_row_has_all(shared: Database) -> None:
    """M7: the log has no bound per workspace, so an event is small whatever was sent."""
    body = bytes(range(256)) * 4000
    headers = {f"name-{number:03}": "v" * 1000 for number in range(100)}
    await reject(shared, "cmd.task.submit.v1", 1, body, **headers)
    (row,) = await fetch(shared, "select body, headers from grns.dead_letters")
    assert (row["body"], json.loads(row["headers"])) == (body, headers)
    (event,) = await fetch(shared, "select payload from grns.events where kind = 'dlq.message.rejected'")
    assert len(event["payload"]) < 12_000
    told = MessageRejected.model_validate_json(event["payload"])
    assert (base64.b64decode(told.body_base64), told.body_size) == (body[:HEAD_BYTES], len(body))
    assert told.headers == {name: headers[name] for name in sorted(headers)[:4]}
