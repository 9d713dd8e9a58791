"""Each component at work as the user that `grns admin nats-config` gives it, against a real nats-server."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import nats
import pytest
from nats.aio.client import Client as Nats

import grns
from grns.dev.servers import LocalNats
from grns.nats.users import authorization, users
from grns.postgres.database import Database
from grns.settings import Settings
from tests.support.harness import START_SECONDS, Fleet, eventually

SUBMIT = "req.task.submit.v1"


class Broker:
    """A broker whose users are those of `grns admin nats-config`."""

    def __init__(self, directory: Path) -> None:
        self.users = {
            user.name: user for user in users(Settings(), pools=["scout"], workspaces=["default", "acme"])
        }
        self._passwords = {name: f"p{secrets.token_hex(8)}" for name in self.users}
        block = authorization(list(self.users.values()), self._passwords)
        self.server = LocalNats(directory, extra_config=block, has_token=False)

    def url(self, name: str) -> str:
        """The URL for a user."""
        return f"nats://{name}:{self._passwords[name]}@127.0.0.1:{self.server.port}"

    def environment(self, name: str) -> dict[str, str]:
        """What a process of this user is started with."""
        return {"GRNS_NATS_URL": self.url(name), "GRNS_NATS_INBOX_PREFIX": self.users[name].inbox}

    @asynccontextmanager
    async def stranger(self, name: str) -> AsyncIterator[tuple[Nats, list[str]]]:
        """A client of no grns with a user's password, and what the server forbids it."""
        forbidden: list[str] = []

        async def note(error: Exception) -> None:
            forbidden.append(str(error))

        client = await nats.connect(
            self.url(name), error_cb=note, inbox_prefix=self.users[name].inbox.encode(), allow_reconnect=False
        )
        try:
            yield client, forbidden
        finally:
            await client.close()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Broker]:
    """The broker, running."""
    broker = Broker(tmp_path / "guarded")
    with broker.server:
        yield broker


def order(kind: str, payload: dict[str, Any]) -> bytes:
    """A message of a foreign client."""
    said = {
        "schema_version": "v1", "message_id": str(uuid4()), "trace_id": "tr-8f678c2a", "causation_id": None,
        "kind": kind, "emitted_at": datetime.now(UTC).isoformat().replace("+00:00", "Z"), "payload": payload,
    }  # fmt: skip
    return json.dumps(said).encode()


async def test_components_work_as_their_own_users(
    guarded: Broker, database: Database, tmp_path: Path
) -> None:
    """M10: nothing said which permissions each component needs, so everybody had all of them."""
    fleet = Fleet(tmp_path, {"GRNS_DATABASE_URL": database.url, "GRNS_LOG_FORMAT": "json"})
    try:
        await _apply(fleet, guarded)
        for name, *arguments in (
            ("relay", "daemon", "relay"),
            ("gateway", "daemon", "command-server"),
            ("janitor", "daemon", "janitor"),
            ("daemon", "daemon", "reaper"),
            ("daemon", "daemon", "scheduler"),
            ("daemon", "daemon", "operations"),
            ("daemon", "daemon", "stats"),
            ("daemon", "daemon", "webhooks"),
            ("api", "daemon", "api", "--port", "0"),
            ("worker-scout", "worker", "start", "tests.support.scouts:pool"),
        ):
            fleet.start(*arguments, **guarded.environment(name), GRNS_JANITOR_INTERVAL_SECONDS="1")
        await _do_everything(guarded, database)
        for process in fleet.processes[1:]:
            assert process.poll() is None, fleet.log_of(process)
            assert "ermissions violation" not in fleet.log_of(process)
    finally:
        fleet.end()


async def test_all_daemons_in_one_process_work_as_the_server(
    guarded: Broker, database: Database, tmp_path: Path
) -> None:
    """M10: `grns server` needs what its daemons need together."""
    fleet = Fleet(tmp_path, {"GRNS_DATABASE_URL": database.url, "GRNS_LOG_FORMAT": "json"})
    try:
        await _apply(fleet, guarded)
        server = fleet.start("server", **guarded.environment("server"), GRNS_JANITOR_INTERVAL_SECONDS="1")
        worker = fleet.start(
            "worker", "start", "tests.support.scouts:pool", **guarded.environment("worker-scout")
        )
        await _do_everything(guarded, database)
        for process in (server, worker):
            assert "ermissions violation" not in fleet.log_of(process)
    finally:
        fleet.end()


async def _apply(fleet: Fleet, broker: Broker) -> None:
    """Make the streams, as the admin does before the first start: workers may not."""
    applied = fleet.start("admin", "broker", "apply", **broker.environment("admin"))
    assert await asyncio.to_thread(applied.wait) == 0, fleet.log_of(applied)


async def _do_everything(broker: Broker, database: Database) -> None:
    """Submit from the database, by a request and by a command; follow events in both ways; run it all."""
    heard: list[str] = []

    async def hear(message: Any) -> None:
        heard.append(message.subject)

    handled: list[str] = []

    async def handle(event: grns.Event, _connection: Any) -> None:
        handled.append(event.kind)

    async with broker.stranger("listener-default") as (listener, forbidden):
        await listener.subscribe("evt.*.*.v1", cb=hear)
        await listener.flush()
        connected = grns.connect(
            database_url=database.url,
            nats_url=broker.url("subscriber"),
            nats_inbox_prefix=broker.users["subscriber"].inbox,
        )
        async with connected as client, broker.stranger("submitter-default") as (submitter, refused):
            subscription = await client.subscribe("audit", handle, kinds=["evt.task.completed"])
            task_id = (await client.submit("noop", pool="scout")).id
            payload = {"task_type": "noop", "agent_type": "scout"}
            answers = []

            async def ask() -> bool:
                try:
                    answer = await submitter.request(SUBMIT, order("cmd.task.submit", payload), timeout=2)
                except nats.errors.NoRespondersError:
                    return False  # the request desk is not up yet
                answers.append(json.loads(answer.data))
                return True

            await eventually(ask, within_seconds=START_SECONDS)
            await submitter.jetstream().publish("cmd.task.submit.v1", order("cmd.task.submit", payload))

            async def are_done() -> bool:
                return len(handled) >= 3 and heard.count("evt.task.completed.v1") >= 3

            await eventually(are_done, within_seconds=40.0)
            assert (await client.get(task_id)).status == "succeeded"
            assert answers[-1]["status"] in ("queued", "running", "succeeded")
            await subscription.stop()
            assert forbidden + refused == []


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("submitter-acme", "cmd.task.submit.v1.other"),
        ("submitter-acme", "cmd.task.submit.v1"),
        ("submitter-acme", "cmd.task.anything.v1.acme"),
        ("submitter-acme", "req.task.submit.v1.other"),
        ("submitter-acme", "evt.task.completed.v1.acme"),
        ("submitter-acme", "$JS.API.STREAM.PURGE.GRNS_CMD"),
        ("listener-acme", "cmd.task.submit.v1.acme"),
        ("worker-scout", "evt.task.completed.v1"),
        ("worker-scout", "cmd.task.submit.v1"),
        ("worker-scout", "$JS.API.STREAM.DELETE.GRNS_EVT"),
        ("worker-scout", "$JS.API.CONSUMER.MSG.NEXT.GRNS_CMD.submit"),
        ("gateway", "evt.task.completed.v1"),
        ("api", "evt.task.completed.v1"),
        ("subscriber", "cmd.task.submit.v1"),
        ("client", "cmd.task.submit.v1"),
        ("relay", "$JS.API.STREAM.PURGE.GRNS_EVT"),
    ],
)
async def test_user_is_refused_what_is_not_its_own(guarded: Broker, name: str, subject: str) -> None:
    """M10: a password that is stolen opens no more than its component needs."""
    async with guarded.stranger(name) as (client, forbidden):
        await client.publish(subject, b"{}")
        await client.flush()
        await eventually(lambda: _is_told(forbidden, "Publish"))


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("submitter-acme", "evt.>"),
        ("submitter-acme", "_INBOX.>"),
        ("submitter-acme", "_INBOX_submitter-default.>"),
        ("listener-acme", "evt.>"),
        ("listener-acme", "evt.*.*.v1"),
        ("worker-scout", "evt.>"),
        ("worker-scout", "cmd.>"),
        ("daemon", "dlq.>"),
        ("relay", "_INBOX.>"),
    ],
)
async def test_user_hears_nothing_that_is_not_its_own(guarded: Broker, name: str, subject: str) -> None:
    """M10: whoever subscribed to `_INBOX.>` read the answers to others, tasks and all."""
    async with guarded.stranger(name) as (client, forbidden):
        await client.subscribe(subject)
        await client.flush()
        await eventually(lambda: _is_told(forbidden, "Subscription"))


async def _is_told(forbidden: list[str], what: str) -> bool:
    return any(f"permissions violation for {what}".lower() in one.lower() for one in forbidden)
