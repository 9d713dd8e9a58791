"""The clerk: what becomes of each command and request, and never before its effect is durable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from grns.bootstrap.app import App
from grns.client.client import Client
from grns.errors import BrokerRefusedError, RateLimitedError, UnavailableError
from grns.gateway.command_store import CommandStore
from grns.gateway.commands import CommandHandler
from grns.model.events import Truncated
from grns.nats.delivery import Delivery, Request
from grns.postgres.database import Database
from grns.settings import load
from grns.telemetry.metrics_listener import MetricsListener
from grns.telemetry.task_signals import CommandHandled, DeliveryDeferred, RejectedMessageStored
from grns.worker.executor import UNKNOWN_TASK_DELAYS
from tests.support.bad_input import encoded
from tests.support.commands import (
    ASK_CANCEL,
    ASK_SUBMIT,
    CANCEL,
    SIGNAL,
    SUBMIT,
    cancellation,
    signal,
    submission,
)
from tests.support.harness import settings_for, submit
from tests.support.relays import Note
from tests.support.store import fetch, kinds_of, place, row_of, stranger
from tests.worker.test_executor import Copy


class Asked(Request):
    """A request that notes its answer; the broker takes no more than so many bytes."""

    subject, body, headers, is_awaited = "", b"", dict[str, str](), True

    def __init__(self, subject: str, message: Mapping[str, Any] | bytes, *, most_bytes: int = 2**20) -> None:
        self.subject = subject
        self.body = message if isinstance(message, bytes) else encoded(message)
        self.headers = {}
        self.most_bytes = most_bytes
        self.said: dict[str, Any] | None = None
        self.told: Mapping[str, str] = {}

    def answer(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Take note."""
        assert self.said is None, "it is answered once"
        if len(body) > self.most_bytes:
            raise BrokerRefusedError("too_large", "more than the broker takes")
        self.said, self.told = json.loads(body), headers

    @property
    def problem(self) -> tuple[int, str]:
        """The status and the code of what it was told."""
        assert self.said is not None
        assert self.told["Content-Type"] == "application/problem+json"
        return self.said["status"], self.said["code"]


class Stage:
    """A clerk whose broker is not there, and what it tells."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.note = Note()
        settings = load()
        app = App(settings_for(database.url), (self.note,))
        self.clerk = CommandHandler(
            database=database,
            transport=app.transport("test"),
            commands=CommandStore(database, batch_limit=10, actor="nats"),
            envelope_limits=settings.envelope_limits,
            payload_limits=settings.payload_limits,
            emit=app.telemetry.emit,
        )

    async def follow(self, message: Mapping[str, Any] | bytes, subject: str, *, count: int = 1) -> Copy:
        """Let it end a delivery; returns the delivery, which notes how."""
        body = message if isinstance(message, bytes) else encoded(message)
        delivery = Copy(self.database, body, count=count)
        delivery.subject = subject
        self.rest_seconds = await self.clerk.follow(delivery)
        return delivery

    async def ask(self, message: Mapping[str, Any] | bytes, subject: str, **more: Any) -> Asked:
        """Let it answer a request; returns the request, which notes what was said."""
        request = Asked(subject, message, **more)
        await self.clerk.answer(request)
        return request

    @property
    def words(self) -> list[tuple[str, str]]:
        """What became of the orders so far, and which way they came."""
        return [
            (signal.way, signal.answer) for signal in self.note.emitted if isinstance(signal, CommandHandled)
        ]

    async def letters(self) -> list[Any]:
        """Return all dead letters."""
        return await fetch(self.database, "select * from grns.dead_letters order by created_at")


@pytest.fixture
def stage(shared: Database) -> Stage:
    """A clerk."""
    return Stage(shared)


# ---------------------------------------------------------------- commands


async def test_a_command_is_acked_once_its_task_is_there(stage: Stage) -> None:
    message = submission(payload={"n": 1})
    delivery = await stage.follow(message, SUBMIT)
    assert delivery.end == ("ack", None)
    assert delivery.statuses == ["queued"], "it was there when the delivery ended"
    (row,) = await fetch(stage.database, "select * from grns.tasks")
    assert row["idempotency_key"] == message["message_id"]
    assert row["causation_id"] == UUID(message["message_id"])
    assert row["trace_id"] == message["trace_id"]
    assert stage.rest_seconds == 0


async def test_one_that_comes_again_is_acked_and_has_no_effect(stage: Stage) -> None:
    """As after a crash between the commit and the ack."""
    message = submission()
    for count in (1, 2):
        assert (await stage.follow(message, SUBMIT, count=count)).end == ("ack", None)
    assert len(await fetch(stage.database, "select from grns.tasks")) == 1
    assert stage.words == [("command", "created"), ("command", "repeated")]


async def test_a_command_ends_a_task(stage: Stage) -> None:
    task_id = (await place(stage.database, "queued")).id
    delivery = await stage.follow(cancellation(task_id, reason="enough"), CANCEL)
    assert (delivery.end, delivery.statuses) == (("ack", None), ["cancelled"])
    row = await row_of(stage.database, task_id)
    assert (row["cancel_reason"], row["status"]) == ("enough", "cancelled")


async def test_a_signal_is_sent_once_and_named_by_its_message(stage: Stage) -> None:
    task_id = (await place(stage.database, "queued")).id
    message = signal(task_id, "approved", value={"by": "ann"})
    for answer in ("kept", "repeated"):
        assert (await stage.follow(message, SIGNAL)).end == ("ack", None)
        assert stage.words[-1] == ("command", answer)
    (kept,) = await fetch(stage.database, "select * from grns.signals")
    assert (str(kept["id"]), kept["name"], kept["value"]) == (
        message["message_id"],
        "approved",
        '{"by": "ann"}',
    )
    assert kept["sent_by"] == "nats"


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"name": "two words"}, "bad_payload"), ({"value": "x" * 70_000}, "too_large"), ({}, "conflict")],
)
async def test_a_signal_that_cannot_be_accepted_is_kept_as_a_dead_letter(
    stage: Stage, fields: dict[str, Any], code: str
) -> None:
    status = "succeeded" if code == "conflict" else "queued"
    task_id = (await place(stage.database, status)).id
    message = signal(task_id, **({"name": "approved"} | fields))
    assert (await stage.follow(message, SIGNAL)).end == ("term", code)


async def test_a_signal_of_a_task_that_may_not_be_committed_yet_waits(stage: Stage) -> None:
    delivery = await stage.follow(signal("gr-nobody", "approved"), SIGNAL)
    assert delivery.end is not None
    assert delivery.end[0] == "nak"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"no message", "bad_json"),
        (submission(task_type="a.b"), "bad_submission"),
        (submission(workspace="acme"), "bad_submission"),
        (submission(payload={"x": "x" * 300_000}), "too_large"),
        (cancellation("gr-1"), "kind_mismatch"),
    ],
    ids=["bytes", "name", "workspace", "size", "kind"],
)
async def test_one_that_cannot_be_accepted_is_buried(
    stage: Stage, message: Mapping[str, Any] | bytes, code: str
) -> None:
    delivery = await stage.follow(message, SUBMIT)
    assert delivery.end == ("term", code)
    (letter,) = await stage.letters()
    assert (letter["reason"], letter["workspace"], letter["body"]) == (code, "default", delivery.body)
    assert stage.words == [("command", code)]
    assert not await fetch(stage.database, "select from grns.tasks")


async def test_a_letter_belongs_to_the_workspace_of_its_subject(stage: Stage) -> None:
    for subject in (f"{SUBMIT}.acme", f"{SUBMIT}.a:b", f"{CANCEL}.acme"):
        await stage.follow(subject.encode(), subject)
    assert [letter["workspace"] for letter in await stage.letters()] == ["acme", "_unknown", "acme"]


async def test_a_conflict_is_buried_also_where_it_comes_again(stage: Stage) -> None:
    """As after a crash before the letter was written, or before its delivery was ended."""
    await stage.follow(submission(idempotency_key="k", payload={"n": 1}), SUBMIT)
    message = submission(idempotency_key="k", payload={"n": 2})
    for count in (1, 2):
        assert (await stage.follow(message, SUBMIT, count=count)).end == ("term", "conflict")
    assert [letter["reason"] for letter in await stage.letters()] == ["conflict"], "and is there once"


async def test_the_end_of_a_task_that_may_not_be_committed_yet_is_waited_for(stage: Stage) -> None:
    async with stranger(stage.database) as other:
        task_id = await other.fetchval("select grns.submit_task('noop')")
        message = cancellation(task_id)
        for count, delay_seconds in enumerate(UNKNOWN_TASK_DELAYS, 1):
            delivery = await stage.follow(message, CANCEL, count=count)
            assert delivery.end == ("nak", delay_seconds)
        await other.execute("commit")
    assert (await stage.follow(message, CANCEL, count=5)).end == ("ack", None)
    assert (await row_of(stage.database, task_id))["status"] == "cancelled"
    assert not await stage.letters()


async def test_a_need_that_may_not_be_committed_yet_is_waited_for(stage: Stage) -> None:
    async with stranger(stage.database) as other:
        task_id = await other.fetchval("select grns.submit_task('noop')")
        message = submission(needs=[{"task": task_id}])
        delivery = await stage.follow(message, SUBMIT)
        assert delivery.end == ("nak", UNKNOWN_TASK_DELAYS[0])
        await other.execute("commit")
    assert (await stage.follow(message, SUBMIT, count=2)).end == ("ack", None)
    never = submission(needs=[{"task": "gr-nothing"}])
    delivery = await stage.follow(never, SUBMIT, count=len(UNKNOWN_TASK_DELAYS) + 1)
    assert delivery.end == ("term", "unknown_need")


async def test_the_end_of_a_task_that_never_comes_is_a_dead_letter(stage: Stage) -> None:
    delivery = await stage.follow(cancellation("gr-0"), CANCEL, count=len(UNKNOWN_TASK_DELAYS) + 1)
    assert delivery.end == ("term", "unknown_task")
    assert [letter["reason"] for letter in await stage.letters()] == ["unknown_task"]


async def test_what_cannot_be_done_now_is_given_back_and_its_place_kept_empty(stage: Stage) -> None:
    """Where Postgres is away, whatever else would be fetched meanwhile would only be given back as well."""
    await stage.database.close()
    delivery = Silent(encoded(submission()), SUBMIT)
    rest_seconds = await stage.clerk.follow(delivery)
    assert delivery.end == ("nak", rest_seconds)
    assert 1.0 <= rest_seconds <= 5.0
    assert await stage.note.has_told(DeliveryDeferred)
    rubbish = Silent(b"no message", SUBMIT)
    assert await stage.clerk.follow(rubbish) == 5.0
    assert rubbish.end == ("nak", 5.0), "nor can it be buried"


async def test_a_broker_that_is_gone_when_it_is_done_harms_nothing(stage: Stage) -> None:
    """It delivers again, and then it is known."""
    delivery = Silent(encoded(submission()), SUBMIT, is_deaf=True)
    assert await stage.clerk.follow(delivery) == 0.0
    assert len(await fetch(stage.database, "select from grns.tasks")) == 1


class Silent(Delivery):
    """A delivery that asks nobody anything; a deaf one cannot be ended either."""

    stream, stream_seq, token, delivery_count = "GRNS_CMD", 7, "", 1
    subject, body, headers = "", b"", dict[str, str]()

    def __init__(self, body: bytes, subject: str, *, is_deaf: bool = False) -> None:
        self.body, self.subject = body, subject
        self.headers = {}
        self.end: tuple[str, Any] | None = None
        self._is_deaf = is_deaf

    def _note(self, how: str, what: Any = None) -> None:
        if self._is_deaf:
            raise UnavailableError("the broker is away")
        self.end = (how, what)

    async def ack(self) -> None:
        self._note("ack")

    async def nak(self, delay_seconds: float = 0.0) -> None:
        self._note("nak", delay_seconds)

    async def in_progress(self) -> None: ...

    async def term(self, reason: str) -> None:
        self._note("term", reason)


# ---------------------------------------------------------------- requests


async def test_a_request_is_answered_with_its_task(stage: Stage) -> None:
    message = submission(payload={"n": 2**53 + 1, "x": 1e300, "é": None}, priority=0, delay_seconds=60)
    asked = await stage.ask(message, ASK_SUBMIT)
    assert asked.told == {"Content-Type": "application/json", "Grns-Answer": "created"}
    assert asked.said is not None
    assert asked.said["payload"] == message["payload"]["payload"]
    assert (asked.said["status"], asked.said["priority"], asked.said["version"]) == ("waiting", 0, 1)
    assert asked.said["created_at"].endswith("Z")
    row = await row_of(stage.database, asked.said["id"])
    assert (row["workspace"], row["idempotency_key"]) == ("default", message["message_id"])


async def test_asked_again_it_is_answered_with_the_same_task(stage: Stage) -> None:
    """Whoever got no answer asks again; whoever has sent it as a command may ask what became of it."""
    message = submission(payload={"n": 1})
    first = await stage.ask(message, ASK_SUBMIT)
    again = await stage.ask(message, ASK_SUBMIT)
    assert first.said is not None
    assert again.said == first.said
    assert again.told["Grns-Answer"] == "repeated"
    await stage.follow(message, SUBMIT)
    assert stage.words == [("request", "created"), ("request", "repeated"), ("command", "repeated")]
    assert await kinds_of(stage.database, first.said["id"]) == ["evt.task.queued", "cmd.task.execute"]


async def test_a_request_ends_a_task_and_says_where_it_is_now(stage: Stage) -> None:
    for road, word, status in (
        ("queued", "cancelled", "cancelled"),
        ("running", "requested", "running"),
        ("succeeded", "succeeded", "succeeded"),
    ):
        task_id = (await place(stage.database, road)).id
        asked = await stage.ask(cancellation(task_id), ASK_CANCEL)
        assert asked.said is not None
        assert (asked.told["Grns-Answer"], asked.said["id"], asked.said["status"]) == (word, task_id, status)


async def test_what_is_in_its_way_is_told(stage: Stage) -> None:
    taken = submission(idempotency_key="k")
    await stage.ask(taken, ASK_SUBMIT)
    elsewhere = (await submit(stage.database, workspace="acme")).id
    for message, subject, problem in (
        (b"", ASK_SUBMIT, (400, "bad_json")),
        (submission(priority=9), ASK_SUBMIT, (400, "bad_submission")),
        (submission(payload={"x": "x" * 300_000}), ASK_SUBMIT, (413, "too_large")),
        (submission(idempotency_key="k", payload={"n": 1}), ASK_SUBMIT, (409, "conflict")),
        (cancellation("gr-0"), ASK_CANCEL, (404, "not_found")),
        (cancellation(elsewhere), ASK_CANCEL, (404, "not_found")),
        (submission(), f"{ASK_SUBMIT}.a:b", (400, "bad_name")),
    ):
        assert (await stage.ask(message, subject)).problem == problem
    assert not await stage.letters(), "whoever asked has been told"


async def test_what_was_deleted_since_is_said_to_be(stage: Stage) -> None:
    message = submission()
    await stage.ask(message, ASK_SUBMIT)
    await fetch(stage.database, "delete from grns.tasks")
    assert (await stage.ask(message, ASK_SUBMIT)).problem == (404, "not_found")
    assert not await fetch(stage.database, "select from grns.tasks")


async def test_without_postgres_that_is_said_at_once(stage: Stage) -> None:
    await stage.database.close()
    asked = await stage.ask(submission(), ASK_SUBMIT)
    assert asked.problem == (503, "unavailable")
    assert asked.said is not None
    assert "Postgres" not in asked.said["detail"]


async def test_a_task_too_large_for_the_broker_is_told_by_reference(stage: Stage) -> None:
    asked = await stage.ask(submission(payload={"x": "x" * 5000}), ASK_SUBMIT, most_bytes=1000)
    said = Truncated.model_validate(asked.said)
    (row,) = await fetch(stage.database, "select id from grns.tasks")
    assert (said.task_id, said.ref) == (row["id"], f"db://tasks/{row['id']}")
    assert asked.told["Grns-Answer"] == "created"


async def test_one_without_an_inbox_is_kept_and_not_carried_out(stage: Stage) -> None:
    """It would be done for nobody, and whoever sent it should hear of the mistake."""
    request = Asked(f"{ASK_SUBMIT}.acme", submission())
    request.is_awaited = False
    for _ in range(2):
        await stage.clerk.answer(request)
    assert request.said is None
    (letter,) = await stage.letters()
    assert (letter["reason"], letter["workspace"], letter["body"]) == ("no_reply", "acme", request.body)
    assert not await fetch(stage.database, "select from grns.tasks")
    assert await stage.note.has_told(RejectedMessageStored)


async def test_one_that_is_turned_away_is_told_so(stage: Stage) -> None:
    request = Asked(ASK_CANCEL, b"")
    stage.clerk.refuse(request, RateLimitedError("1000 are under way"))
    assert request.problem == (429, "too_many_requests")
    assert stage.words == [("request", "too_many_requests")]


def test_what_became_of_orders_is_counted() -> None:
    listener = MetricsListener()
    for answer in ("created", "created", "bad_json"):
        listener.receive(CommandHandled("cmd.task.submit", "request", answer, None, None))
    value = listener.registry.get_sample_value
    labels = {"kind": "cmd.task.submit", "way": "request"}
    assert value("grns_nats_requests_total", labels | {"answer": "created"}) == 2
    assert value("grns_nats_requests_total", labels | {"answer": "bad_json"}) == 1


# ---------------------------------------------------------------- agents


def to_agents(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Return a message to agents."""
    return submission() | {"kind": kind, "payload": payload}


async def test_a_command_to_agents_of_a_type_is_a_task_of_their_pool(stage: Stage) -> None:
    message = to_agents("cmd.agent.coder.write_code", {"branch": "fix-1"})
    for _ in range(2):
        delivery = await stage.follow(message, "cmd.agent.coder.write_code.v1.acme")
        assert delivery.end == ("ack", None)
    (row,) = await fetch(stage.database, "select * from grns.tasks")
    assert (row["agent_type"], row["task_type"], row["workspace"]) == ("coder", "write_code", "acme")
    assert row["idempotency_key"] == message["message_id"]
    asked = await stage.ask(message, "req.agent.coder.write_code.v1.acme")
    assert asked.said is not None
    assert (asked.said["id"], asked.said["payload"]) == (row["id"], {"branch": "fix-1"})


async def test_a_command_to_one_agent_is_mail(stage: Stage, client: Client) -> None:
    subject = "cmd.agent.instance.coder-1.v1"
    message = to_agents("cmd.agent.instance.coder-1", {"action": "stop_building", "why": "red"})
    first = await stage.follow(message, subject)
    assert first.end == ("nak", 1.0), "it may be registered in a moment"
    await client.agents.put("coder-1", pool="coder")
    for _ in range(2):
        assert (await stage.follow(message, subject)).end == ("ack", None)
    (mail,) = await client.mail.poll("coder-1")
    assert (mail.type, mail.payload, str(mail.id)) == ("stop_building", {"why": "red"}, message["message_id"])
    asked = await stage.ask(message, "req.agent.instance.coder-1.v1")
    assert asked.said == {"message_id": message["message_id"]}
    unknown = to_agents("cmd.agent.instance.nobody", {"action": "x"})
    lost = await stage.follow(unknown, "cmd.agent.instance.nobody.v1", count=9)
    assert lost.end is not None
    assert [letter["reason"] for letter in await stage.letters()] == ["unknown_agent"]


async def test_a_command_to_agents_that_cannot_be_a_task_is_a_dead_letter(stage: Stage) -> None:
    for kind, payload in (
        ("cmd.agent.coder.write_code", {"n": "x" * 300_000}),
        ("cmd.agent.instance.coder-1", {"no": "action"}),
    ):
        await stage.follow(to_agents(kind, payload), f"{kind}.v1")
    assert len(await stage.letters()) == 2
