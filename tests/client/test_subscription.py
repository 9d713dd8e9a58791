"""Durable subscriptions: every event, handled once, with what its handler writes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import asyncpg
import nats
import pytest

import grns
from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.client.client import Client
from grns.client.subscription import Event
from grns.dev.servers import LocalNats
from grns.errors import GrnsError, UnavailableError
from grns.model.events import TaskCompleted, TaskQueued
from grns.nats import JetStream
from grns.postgres.database import Connection, Database
from tests.support.bad_input import PAYLOADS, Case, encoded, envelope, messages
from tests.support.harness import eventually, is_relayed, read_stream, settings_for
from tests.support.store import claim, fetch, finish

HEAD_BYTES = 256 * 1024  # what a letter keeps of a body at least


@pytest.fixture
async def client(database: Database, broker: LocalNats) -> AsyncIterator[Client]:
    """A client, and a relay that publishes what happens."""
    await fetch(database, "create table seen (message_id uuid, subscriber text)")
    app = App(settings_for(database.url, broker.url))
    # a short lease: what was not ended comes again when it is over
    connecting = grns.connect(database_url=database.url, nats_url=broker.url, lease_seconds=5.0)
    async with connecting as client, app.connections("relay") as theirs:
        relay = daemons.relay(app, *theirs)
        relaying = asyncio.create_task(relay.run())
        yield client
        relay.stop()
        await relaying


class Subscriber:
    """Handles events by a row in a table of its own, and notes all it was given."""

    def __init__(self, name: str = "me") -> None:
        self.name = name
        self.given: list[Event] = []
        self.breaks: list[BaseException] = []

    async def handle(self, event: Event, connection: Connection) -> None:
        """Write a row, and perhaps break."""
        self.given.append(event)
        await connection.execute("insert into seen values ($1, $2)", event.envelope.message_id, self.name)
        if self.breaks:
            raise self.breaks.pop()

    async def has(self, count: int) -> None:
        """Wait until it was given so many events."""

        async def look() -> bool:
            return len(self.given) >= count

        await eventually(look)


async def committed(database: Database, count: int) -> list[Any]:
    """Wait until so many rows have been committed by handlers."""

    async def look() -> list[Any]:
        rows = await fetch(database, "select * from seen")
        return rows if len(rows) >= count else []

    return await eventually(look)


async def run_one(client: Client, database: Database) -> str:
    """Let one task run, from submit to its end."""
    task_id = (await client.submit("noop", pool="worker")).id
    await finish(database, await claim(database, task_id))
    return task_id


async def test_a_subscriber_is_given_every_event_in_order(client: Client, database: Database) -> None:
    me = Subscriber()
    subscription = await client.subscribe("me", me.handle)
    task_id = await run_one(client, database)
    await me.has(3)
    rows = await committed(database, 3)
    await subscription.stop()
    assert [(event.kind, event.subject, event.task_id, event.version) for event in me.given] == [
        ("evt.task.queued", "evt.task.queued.v1", task_id, 1),
        ("evt.task.claimed", "evt.task.claimed.v1", task_id, 2),
        ("evt.task.completed", "evt.task.completed.v1", task_id, 3),
    ]
    assert isinstance(me.given[0].payload, TaskQueued)
    assert isinstance(me.given[2].payload, TaskCompleted)
    assert len(rows) == 3
    marks = await fetch(database, "select message_id from grns.processed_messages where consumer = 'me'")
    assert {row["message_id"] for row in marks} == {event.envelope.message_id for event in me.given}


async def test_it_goes_on_where_it_was(client: Client, database: Database) -> None:
    """Whatever happened meanwhile is there; another name has a position of its own."""
    await run_one(client, database)
    me = Subscriber()
    subscription = await client.subscribe("me", me.handle)
    await me.has(3)
    await committed(database, 3)
    await subscription.stop()
    later = await run_one(client, database)
    again, other = Subscriber(), Subscriber("other")
    subscriptions = [
        await client.subscribe("me", again.handle),
        await client.subscribe("other", other.handle),
    ]
    await asyncio.gather(again.has(3), other.has(6))
    for one in subscriptions:
        await one.stop()
    assert {event.task_id for event in again.given} == {later}
    assert len(again.given) == 3


async def test_only_the_kinds_that_were_asked_for_come(client: Client, database: Database) -> None:
    me = Subscriber()
    subscription = await client.subscribe("me", me.handle, kinds=["evt.task.completed", "evt.agent.a.b"])
    for _ in range(2):
        await run_one(client, database)
    await me.has(2)
    await subscription.stop()
    assert {event.kind for event in me.given} == {"evt.task.completed"}


async def test_event_of_a_kind_not_asked_for_is_not_handled(client: Client, database: Database) -> None:
    """R1: after a power cut, nats-server delivers by number again, past the filter of the durable."""
    me = Subscriber()
    subscription = await client.subscribe("me", me.handle, kinds=["evt.task.queued", "evt.task.completed"])
    subscription._filters = ["evt.task.completed.v1"]  # now the broker delivers more than was asked for
    await run_one(client, database)
    await me.has(1)
    await subscription.stop()
    assert [event.kind for event in me.given] == ["evt.task.completed"]


async def test_what_a_broken_handler_wrote_is_undone_and_it_is_tried_again(
    client: Client, database: Database
) -> None:
    me = Subscriber()
    me.breaks = [ValueError("not yet")]
    subscription = await client.subscribe("me", me.handle, kinds=["evt.task.queued"])
    await client.submit("noop", pool="worker")
    await me.has(2)
    rows = await committed(database, 1)
    await subscription.stop()
    first, second = [event.envelope.message_id for event in me.given]
    assert [row["message_id"] for row in rows] == [first] == [second]


async def test_an_event_that_comes_twice_is_handled_once(
    client: Client, database: Database, broker: LocalNats
) -> None:
    """As after a failover of the relay, outside the broker's own window: the same message, stored again."""
    await run_one(client, database)
    await eventually(lambda: is_relayed(database))
    stored = await read_stream(broker.url, "GRNS_EVT")
    foreign = await nats.connect(broker.url)
    try:
        for heard in stored:
            headers = {**heard.headers, "Nats-Msg-Id": f"again-{heard.seq}"}
            body = json.dumps(heard.body).encode()
            await foreign.jetstream().publish(heard.subject, body, headers=headers)
    finally:
        await foreign.close()
    me = Subscriber()
    subscription = await client.subscribe("me", me.handle)
    last = await run_one(client, database)

    async def is_through() -> bool:
        return (last, 3) in [(event.task_id, event.version) for event in me.given]

    await eventually(is_through)
    rows = await committed(database, 6)
    await subscription.stop()
    assert len(me.given) == 6
    assert len(rows) == 6


async def test_two_under_one_name_share_the_events(client: Client, database: Database) -> None:
    one, two = Subscriber(), Subscriber()
    subscriptions = [await client.subscribe("me", each.handle, max_in_flight=1) for each in (one, two)]
    await client.submit_many([{"task": "noop", "pool": "worker"}] * 40)
    rows = await committed(database, 40)
    for each in subscriptions:
        await each.stop()
    assert len({row["message_id"] for row in rows}) == len(rows) == 40


async def test_decorated_function_receives_what_happens(client: Client, database: Database) -> None:
    me = Subscriber()

    @client.on("evt.task.completed", durable_name="me", max_in_flight=1)
    async def note(event: Event[TaskCompleted], connection: Connection) -> None:
        assert event.payload.attempt == 1
        await me.handle(event, connection)

    ids = [(await client.submit("noop", pool="worker")).id for _ in range(3)]
    for task_id in ids:
        await finish(database, await claim(database, task_id))
    await me.has(3)
    assert callable(note)
    assert sorted(event.task_id or "" for event in me.given) == sorted(ids)


async def test_decorator_waits_for_the_broker_and_refuses_what_cannot_be(shared: Database) -> None:
    async with grns.connect(database_url=shared.url, nats_url="nats://127.0.0.1:1") as client:
        client.on("evt.task.*", durable_name="me")(Subscriber().handle)
        for kinds, name, most in (
            ((), "me", 1),
            (("evt.tusk",), "me", 1),
            (("evt.task.*",), "a b", 1),
            (("evt.task.*",), "me", 0),
        ):
            with pytest.raises(grns.InvalidInputError):
                client.on(*kinds, durable_name=name, max_in_flight=most)(Subscriber().handle)


def no_events() -> list[Case]:
    """Return all that is no event: bytes, and the reason of their dead letter."""
    # What is a good envelope is a command, whatever is wrong with its payload.
    commands = [
        Case(case.name, case.value, "kind_mismatch" if case.code == "bad_payload" else case.code)
        for case in messages()
    ]
    queued = "evt.task.queued"
    events = [
        Case(f"event_{case.name}", encoded(case.value | {"kind": queued}), case.code) for case in PAYLOADS
    ]
    return [*commands, *events, Case("another_command", encoded(envelope()), "kind_mismatch")]


async def test_what_is_no_event_is_buried_and_delays_nobody(
    client: Client, database: Database, broker: LocalNats
) -> None:
    me = Subscriber()
    subscription = await client.subscribe("me", me.handle)
    foreign = await nats.connect(broker.url)
    bad: dict[int, Case] = {}
    good: list[str] = []
    try:
        for place, case in enumerate(no_events()):
            bad[(await foreign.jetstream().publish("evt.task.queued.v1", case.value)).seq] = case
            if place % 50 == 0:
                good.append((await client.submit("noop", pool="worker")).id)
    finally:
        await foreign.close()
    good.append((await client.submit("noop", pool="worker")).id)
    await me.has(len(good))

    async def letters() -> dict[int, Any]:
        rows = await fetch(database, "select stream_seq, reason, body from grns.dead_letters")
        assert len({row["stream_seq"] for row in rows}) == len(rows), "one letter for each"
        return {row["stream_seq"]: row for row in rows}

    async def are_buried() -> bool:
        return len(await letters()) >= len(bad)

    await eventually(are_buried)
    await subscription.stop()
    assert [event.task_id for event in me.given] == good
    found = await letters()
    assert set(found) == set(bad)
    # Two lines are two envelopes, and each of these two is rejected as one.
    lines = {seq: case for seq, case in bad.items() if case.name == "two_lines"}
    codes = {seq: "bad_envelope" if seq in lines else case.code for seq, case in bad.items()}
    assert {seq: row["reason"] for seq, row in found.items()} == codes
    assert [found[seq]["body"] for seq in lines] == [b"{}"]
    for seq, case in bad.items():
        if seq in lines:
            continue
        assert case.value.startswith(found[seq]["body"])
        assert len(found[seq]["body"]) >= min(len(case.value), HEAD_BYTES)


async def test_a_version_that_is_no_number_delays_nobody(
    client: Client, database: Database, broker: LocalNats
) -> None:
    """Headers are anybody's words: the event is good, and would come again for ever."""
    me = Subscriber()
    subscription = await client.subscribe("me", me.handle)
    payload = {"task_id": "gr-0", "task_type": "a", "agent_type": "worker", "priority": 2}
    versions = ["²", "٣", "9" * 5000, "9" * 19, "-1", "0x1", "", "7"]
    foreign = await nats.connect(broker.url)
    try:
        for version in versions:
            body = encoded(envelope(kind="evt.task.queued", payload=payload | {"reason": "new_task"}))
            await foreign.jetstream().publish("evt.task.queued.v1", body, headers={"Grns-Version": version})
    finally:
        await foreign.close()
    await me.has(len(versions))
    await subscription.stop()
    assert [event.version for event in me.given] == [*[None] * 7, 7]


async def test_what_was_not_handled_is_given_back_at_the_end(client: Client, database: Database) -> None:
    began, blocked = asyncio.Event(), Subscriber()

    async def block(event: Event, connection: Connection) -> None:
        began.set()
        await asyncio.Event().wait()

    subscription = await client.subscribe("me", block)
    await client.submit_many([{"task": "noop", "pool": "worker"}] * 10)
    await began.wait()
    await subscription.stop()
    again = await client.subscribe("me", blocked.handle)
    await committed(database, 10)
    await again.stop()
    assert len({event.envelope.message_id for event in blocked.given}) == 10


async def test_a_name_with_other_kinds_is_another_subscription(client: Client, database: Database) -> None:
    """What a durable filters is never changed under somebody's feet."""
    first = await client.subscribe("me", Subscriber().handle, kinds=["evt.task.queued"])
    with pytest.raises(GrnsError):
        await client.subscribe("me", Subscriber().handle, kinds=["evt.task.completed"])
    await first.stop()


def cancelled_elsewhere() -> asyncio.CancelledError:
    """Return what a handler raises that waited for something which somebody else has cancelled."""
    return asyncio.CancelledError("not the subscription")


class Unspeakable(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [cancelled_elsewhere(), Unspeakable()], ids=type)
async def test_it_outlives_whatever_its_handler_raises(
    client: Client, database: Database, error: BaseException
) -> None:
    me = Subscriber()
    me.breaks = [error]
    subscription = await client.subscribe("me", me.handle, kinds=["evt.task.queued"])
    await client.submit("noop", pool="worker")
    await committed(database, 1)
    await subscription.stop()
    assert len(me.given) == 2


async def test_it_outlives_a_handler_that_cancels_its_own_task(client: Client, database: Database) -> None:
    me = Subscriber()

    async def handle(event: Event, connection: Connection) -> None:
        task = asyncio.current_task()
        if not me.given and task is not None:
            task.cancel()
        await me.handle(event, connection)

    subscription = await client.subscribe("me", handle, kinds=["evt.task.queued"])
    await client.submit("noop", pool="worker")
    await committed(database, 1)
    await subscription.stop()
    assert len(me.given) == 2


@pytest.mark.parametrize("breaks", [True, False], ids=["nak", "ack"])
async def test_it_outlives_a_broker_that_cannot_be_told(
    client: Client, database: Database, broker: LocalNats, breaks: bool
) -> None:
    """What was not ended comes again, and has its effect once."""
    me, untold = Subscriber(), asyncio.Event()
    me.breaks = [ValueError("not yet")] if breaks else []

    async def handle(event: Event, connection: Connection) -> None:
        if not untold.is_set():
            await asyncio.to_thread(broker.stop)
            await until_nothing_can_be_sent(client)
            untold.set()
        await me.handle(event, connection)

    subscription = await client.subscribe("me", handle, kinds=["evt.task.queued"])
    first = await client.submit("noop", pool="worker")
    await untold.wait()
    await me.has(1)
    await asyncio.to_thread(broker.start)
    second = await client.submit("noop", pool="worker")
    rows = await committed(database, 2)
    await subscription.stop()
    assert sorted(str(event.task_id) for event in me.given) == sorted(
        [first.id, second.id, *([first.id] if breaks else [])]
    )
    assert len({row["message_id"] for row in rows}) == len(rows) == 2


async def until_nothing_can_be_sent(client: Client) -> None:
    """Fill the buffer for a broker that is away, up to the last byte."""
    transport = client._transport
    assert isinstance(transport, JetStream)

    async def is_away() -> bool:
        return not transport.is_connected

    await eventually(is_away)
    size = 500_000
    while size:
        try:
            transport._connection.publish("foo", bytes(size))
        except UnavailableError:
            size //= 2


async def test_a_handler_that_swallows_its_end_does_not_keep_it(client: Client) -> None:
    began = asyncio.Event()

    async def swallow(event: Event, connection: Connection) -> None:
        began.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    subscription = await client.subscribe("me", swallow, kinds=["evt.task.queued"])
    await client.submit("noop", pool="worker")
    await began.wait()
    async with asyncio.timeout(20):
        await subscription.stop()


async def test_what_a_handler_raises_is_told_with_its_traceback(
    client: Client, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    me = Subscriber()
    me.breaks = [ValueError("no answer from postgresql://somebody:hunter2@books")]
    subscription = await client.subscribe("me", me.handle, kinds=["evt.task.queued"])
    await client.submit("noop", pool="worker")
    await committed(database, 1)
    await subscription.stop()
    (told,) = [record for record in caplog.records if "event_not_handled" in record.getMessage()]
    said = told.getMessage()
    assert (told.name, told.levelno) == ("grns", logging.ERROR)
    for words in ("subscription='me'", "evt.task.queued.v1", "ValueError", "raise self.breaks.pop()"):
        assert words in said
    assert said.count("postgresql://somebody:***@books") == 2, "in the message, and below its traceback"
    assert "hunter2" not in said


async def test_what_a_handler_has_lost_is_not_acknowledged(
    client: Client, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """It catches what ends its transaction: Postgres would answer the commit, and commit nothing."""
    attempts = 0

    async def handle(event: Event, connection: Connection) -> None:
        nonlocal attempts
        attempts += 1
        await connection.execute("insert into seen values ($1, 'me')", event.envelope.message_id)
        if attempts == 1:
            with suppress(asyncpg.PostgresError):
                await connection.execute("select 1 / 0")

    subscription = await client.subscribe("me", handle, kinds=["evt.task.queued"])
    await client.submit("noop", pool="worker")
    await committed(database, 1)
    await subscription.stop()
    assert attempts == 2
    assert "async with connection.transaction():" in caplog.text


async def test_an_outage_is_told_of_once_and_not_with_each_event(
    database: Database, broker: LocalNats, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    handled = 0

    async def handle(_event: Event, _connection: Connection) -> None:
        nonlocal handled
        handled += 1
        raise UnavailableError("the books are closed")

    subscription = await client.subscribe("me", handle, kinds=["evt.task.queued"])
    await client.submit_many([{"task": "noop", "pool": "worker"}] * 50)

    async def has_tried() -> bool:
        return handled >= 3

    await eventually(has_tried)
    await subscription.stop()
    assert handled < 10, "it waits a moment before it takes the next one"
    assert caplog.text.count("event_not_handled") <= 2


async def test_the_end_of_the_client_is_that_of_its_subscriptions(
    client: Client, database: Database, broker: LocalNats, caplog: pytest.LogCaptureFixture
) -> None:
    """What they have not handled is given back, and is no fault."""
    began = asyncio.Event()

    async def handle(_event: Event, _connection: Connection) -> None:
        began.set()
        await asyncio.sleep(60)

    async with grns.connect(database_url=database.url, nats_url=broker.url) as other:
        await other.subscribe("me", handle, kinds=["evt.task.queued"])
        await client.submit_many([{"task": "noop", "pool": "worker"}] * 5)
        await began.wait()
    assert "event_not_handled" not in caplog.text
    assert not [task for task in asyncio.all_tasks() if "_handle_all" in repr(task)]


async def test_a_handlers_connection_is_as_the_server_is_set_up(client: Client, database: Database) -> None:
    """Our own are for statements that look a few rows up and take milliseconds."""
    seen: list[str] = []

    async def handle(event: Event, connection: Connection) -> None:
        names = ("enable_seqscan", "enable_hashjoin", "plan_cache_mode", "lock_timeout")
        seen.extend([await connection.fetchval(f"show {name}") for name in names])
        await connection.fetchval("select pg_sleep(2.2)")  # ours wait 2 s for an answer
        await connection.execute("insert into seen values ($1, 'me')", event.envelope.message_id)

    assert not await fetch(database, _HANDLERS_CONNECTIONS)
    subscription = await client.subscribe("me", handle, kinds=["evt.task.queued"])
    await client.submit("noop", pool="worker")
    await committed(database, 1)
    assert await fetch(database, _HANDLERS_CONNECTIONS)
    await subscription.stop()
    assert seen == ["on", "on", "auto", "0"]


_HANDLERS_CONNECTIONS = """
    select from pg_stat_activity
    where datname = current_database() and application_name like 'grns handlers%'
"""
