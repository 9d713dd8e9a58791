"""What every transport must say of how far its durables are behind."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from grns.model import subjects
from grns.nats import JetStream
from grns.nats.messages import Lag
from tests.nats.transport.test_transport import EVENT, LIMIT, PRIORITY_SUBJECT, Inbox, message

if TYPE_CHECKING:
    from tests.nats.transport.conftest import Broker, TransportFactory


async def lags_are(transport: JetStream, expected: list[Lag]) -> None:
    """Wait until the durables are behind as expected."""
    deadline = time.monotonic() + LIMIT
    while (seen := sorted(await transport.lags(), key=lambda lag: (lag.stream, lag.consumer))) != expected:
        assert time.monotonic() < deadline, seen
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("prefix", ["", "second"])
async def test_a_durable_says_what_waits_and_what_was_delivered(
    transport_factory: TransportFactory, prefix: str
) -> None:
    transport = await transport_factory(nats_namespace=prefix) if prefix else await transport_factory()
    assert list(await transport.lags()) == [], "nobody has asked for anything yet"
    inbox = Inbox()
    consumer = await transport.consume(PRIORITY_SUBJECT, inbox, depth=2)
    await transport.subscribe("billing", [EVENT, "evt.task.dead.v1"], Inbox(), depth=1)
    for number in range(5):
        await transport.publish(message(body=b"%d" % number))
    await inbox.has(2)
    events = Lag(subjects.EVT_STREAM, "billing", 0, 0, 0)
    await lags_are(transport, [Lag(subjects.CMD_STREAM, PRIORITY_SUBJECT, 3, 2, 0), events])
    await inbox.deliveries[0].ack()
    await inbox.deliveries[1].nak()
    consumer.set_depth(10)
    await inbox.has(6)
    await lags_are(transport, [Lag(subjects.CMD_STREAM, PRIORITY_SUBJECT, 0, 4, 1), events])
    await consumer.stop()


async def test_a_stream_that_is_not_there_has_no_durables(transport: JetStream, broker: Broker) -> None:
    await transport.consume(PRIORITY_SUBJECT, Inbox(), depth=1)
    await broker.delete_stream(subjects.EVT_STREAM)
    assert [lag.consumer for lag in await transport.lags()] == [PRIORITY_SUBJECT]


@pytest.fixture
async def transport(transport_factory: TransportFactory) -> JetStream:
    """A transport with its streams made."""
    return await transport_factory()
