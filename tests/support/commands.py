"""Orders as anybody may write them, and request desks that run in the test's own process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import nats.errors
from nats.aio.client import Client as Nats
from nats.aio.msg import Msg
from nats.js.errors import Error as JetStreamError

from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.gateway.server import COMMANDS
from grns.model import subjects
from tests.support.bad_input import encoded, envelope
from tests.support.harness import eventually, settings_for
from tests.support.relays import Note

SUBMIT, CANCEL = subjects.message(subjects.SUBMIT), subjects.message(subjects.CANCEL)
SIGNAL = subjects.message(subjects.SIGNAL)
ASK_SUBMIT, ASK_CANCEL = subjects.request(subjects.SUBMIT), subjects.request(subjects.CANCEL)
ANSWER_SECONDS = 20.0


def submission(changes: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return a message that asks for a task, with fields of its payload, and `changes` of its envelope."""
    return envelope(kind=subjects.SUBMIT, payload={"task_type": "noop"} | fields, **(changes or {}))


def cancellation(task_id: str, **fields: Any) -> dict[str, Any]:
    """Return a message that asks for a task's end."""
    return envelope(kind=subjects.CANCEL, payload={"task_id": task_id} | fields)


def signal(task_id: str, name: str, **fields: Any) -> dict[str, Any]:
    """Return a message that sends a signal."""
    return envelope(kind=subjects.SIGNAL, payload={"task_id": task_id, "name": name} | fields)


@dataclass(frozen=True)
class Answer:
    """What whoever asked was told."""

    headers: Mapping[str, str]
    body: dict[str, Any]

    @classmethod
    def of(cls, said: Msg) -> Answer:
        """Read what plain nats-py was answered."""
        return cls(dict(said.headers or {}), json.loads(said.data))

    @property
    def problem(self) -> tuple[int, str]:
        """The status and the code of a problem."""
        assert self.headers["Content-Type"] == "application/problem+json", self.body
        assert self.headers["Nats-Service-Error"] == self.body["code"]
        assert self.headers["Nats-Service-Error-Code"] == str(self.body["status"])
        return self.body["status"], self.body["code"]

    @property
    def word(self) -> str:
        """What became of an order that was carried out."""
        assert self.headers["Content-Type"] == "application/json", self.body
        return self.headers["Grns-Answer"]


async def ask(foreign: Nats, subject: str, message: Mapping[str, Any] | bytes) -> Answer:
    """Send a request with plain nats-py, and wait for its answer."""
    body = message if isinstance(message, bytes) else encoded(message)
    return Answer.of(await foreign.request(subject, body, timeout=ANSWER_SECONDS))


@asynccontextmanager
async def serving(
    database_url: str, nats_url: str, *, count: int = 1, **settings: Any
) -> AsyncIterator[Note]:
    """Run request desks meanwhile, each with connections of its own."""
    note = Note()
    async with AsyncExitStack() as resources:
        for _ in range(count):
            app = App(settings_for(database_url, nats_url, **settings), (note,))
            connecting = app.connections("desk", is_patient=True)
            database, transport = await resources.enter_async_context(connecting)
            desk = daemons.command_server(app, database, transport)
            resources.push_async_callback(asyncio.wait_for, asyncio.create_task(desk.run()), 30)
            resources.callback(desk.stop)
        yield note


async def is_open(foreign: Nats, count: int = 1) -> bool:
    """Say whether so many desks take in requests, which they do first, and fetch all commands."""
    try:
        found = await foreign.jetstream().consumers_info("GRNS_CMD")
    except (JetStreamError, nats.errors.Error):
        return False
    waiting = {one.name: one.num_waiting or 0 for one in found}
    return all(waiting.get(subjects.durable(subject), 0) >= count for subject in COMMANDS)


async def ready(foreign: Nats, count: int = 1) -> None:
    """Wait until so many desks are open."""
    await eventually(lambda: is_open(foreign, count))


async def is_drained(foreign: Nats) -> bool:
    """Say whether no command is left in the stream."""
    return not (await foreign.jetstream().stream_info("GRNS_CMD")).state.messages
