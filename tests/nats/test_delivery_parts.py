"""A message with several envelopes: each is a delivery of its own, and it ends when all have ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from grns.dev.servers import LocalNats
from grns.model import subjects
from grns.model.envelope import traceparent
from grns.nats import JetStream
from grns.nats.consumer import Consumer
from grns.nats.delivery import Delivery
from grns.nats.messages import Message
from tests.support.bad_input import command, encoded
from tests.support.harness import eventually, manage, settings_for

SUBJECT = subjects.priority_subject("default", "worker", 2)


class Inbox:
    """Takes deliveries in."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []

    def receive(self, delivery: Delivery) -> None:
        """Take one in."""
        self.deliveries.append(delivery)

    async def has(self, count: int) -> list[Delivery]:
        """Wait until so many have come, and return them."""

        async def have_come() -> bool:
            return len(self.deliveries) >= count

        await eventually(have_come)
        taken, self.deliveries = self.deliveries, []
        return taken


class Stage:
    """A connection, and a consumer that holds at most so many envelopes."""

    def __init__(self, transport: JetStream, consumer: Consumer, inbox: Inbox, url: str) -> None:
        self.transport = transport
        self.consumer = consumer
        self.inbox = inbox
        self._url = url

    async def publish(self, *envelopes: bytes, subject: str = SUBJECT) -> None:
        """Publish one message."""
        await self.transport.publish(Message(subject, b"\n".join(envelopes), str(uuid4()), {}))

    async def is_empty(self) -> None:
        """Wait until the stream has nothing more."""

        async def look() -> bool:
            return not (await manage(self._url, "STREAM.INFO.GRNS_CMD"))["state"]["messages"]

        await eventually(look)


@pytest.fixture
async def stage(broker: LocalNats) -> AsyncIterator[Stage]:
    """A consumer of one priority subject."""
    transport = JetStream(settings_for("postgresql://nowhere/x", broker.url), name="test")
    await transport.connect()
    await transport.provision()
    inbox = Inbox()
    consumer = await transport.consume(SUBJECT, inbox.receive, depth=100, is_split=True)
    yield Stage(transport, consumer, inbox, broker.url)
    await transport.close()


def envelopes(count: int) -> list[bytes]:
    """Return the commands of so many tasks."""
    return [encoded(command(task_id=f"gr-{number}")) for number in range(count)]


async def test_each_envelope_is_a_delivery_with_a_trace_of_its_own(stage: Stage) -> None:
    sent = envelopes(3)
    await stage.publish(*sent)
    parts = await stage.inbox.has(3)
    assert [part.body for part in parts] == sent
    assert len({part.token for part in parts}) == 1
    traces = [part.headers["traceparent"] for part in parts]
    assert len(set(traces)) == 3
    assert traces[0].split("-")[0] == traceparent("t", str(uuid4())).split("-")[0]
    for part in parts:
        await part.ack()
    await stage.is_empty()


async def test_it_comes_again_whole_if_one_was_given_back(stage: Stage) -> None:
    await stage.publish(*envelopes(4))
    first, second, *rest = await stage.inbox.has(4)
    await first.nak()
    await first.ack()  # the first answer counts
    await second.ack()
    await asyncio.sleep(0.2)
    assert stage.inbox.deliveries == [], "two of it are in use"
    for part in rest:
        await part.ack()
    for _ in range(4):
        stage.consumer.done()
    again = await stage.inbox.has(4)
    assert [part.delivery_count for part in again] == [2] * 4
    for part in again:
        await part.term("of no use")
    await stage.is_empty()


async def test_the_longest_delay_counts(stage: Stage) -> None:
    await stage.publish(*envelopes(2))
    first, second = await stage.inbox.has(2)
    began_at = asyncio.get_running_loop().time()
    await first.nak(0.6)
    await second.nak()
    await stage.inbox.has(2)
    assert asyncio.get_running_loop().time() - began_at >= 0.6


@pytest.mark.parametrize(
    "body",
    [
        b'{\n  "schema_version": "v1"\n}',
        b"[{}\n,{}]",
        b"\n".join([b"{}"] * (subjects.MOST_ENVELOPES + 1)),
        b"}\n",
        b"",
    ],
)
async def test_anything_else_is_one_delivery(stage: Stage, body: bytes) -> None:
    await stage.publish(body)
    (delivery,) = await stage.inbox.has(1)
    assert delivery.body == body
    await delivery.ack()
    await stage.is_empty()


async def test_an_envelope_that_cannot_be_read_has_the_headers_of_its_message(stage: Stage) -> None:
    await stage.publish(b"{}\n{}\n[]")
    parts = await stage.inbox.has(3)
    assert all("Nats-Msg-Id" in part.headers and "traceparent" not in part.headers for part in parts)


async def test_no_more_messages_are_asked_for_than_have_room(stage: Stage) -> None:
    """The mean number of envelopes tells how many messages fill the room."""
    for _ in range(40):
        await stage.publish(*envelopes(subjects.MOST_ENVELOPES))
    await asyncio.sleep(0.5)
    held = len(stage.inbox.deliveries)
    assert held + subjects.MOST_ENVELOPES >= 100
    assert held <= 100 + subjects.MOST_ENVELOPES
