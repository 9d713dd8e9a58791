"""What every transport must do. An implementation joins by its name in `transport_factory`."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from grns.errors import (
    BrokerRefusedError,
    DriftError,
    GrnsError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from grns.model import subjects
from grns.nats import JetStream
from grns.nats.consumer import Consumer
from grns.nats.delivery import Delivery
from grns.nats.messages import Done, Message, Receipt
from tests.support import harness

if TYPE_CHECKING:
    from tests.nats.transport.conftest import Broker, TransportFactory

LIMIT = 10.0
PRIORITY_SUBJECT = subjects.priority_subject("default", "worker", 2)
OTHER_SUBJECT = subjects.priority_subject("default", "worker", 0)
EVENT = "evt.task.queued.v1"
# Short enough to be waited for.
BRISK: dict[str, Any] = {"lease_seconds": 1.0}

Fault = Callable[["Broker"], Awaitable[None]]


async def eventually(fact: Callable[[], object], *, seconds: float = LIMIT) -> None:
    """Return as soon as `fact()` is true."""
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, "it never became true"
        await asyncio.sleep(0.005)


async def stored(transport: JetStream, stream: str, count: int) -> None:
    """Wait until a stream holds so many messages."""
    deadline = time.monotonic() + LIMIT
    while (await transport.state(stream)).messages != count:
        assert time.monotonic() < deadline, "the stream never held that many"
        await asyncio.sleep(0.005)


class Inbox:
    """Takes deliveries in, and remembers them."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.at: list[float] = []

    def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self.at.append(time.monotonic())

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.body for delivery in self.deliveries]

    async def has(self, count: int, *, seconds: float = LIMIT) -> None:
        """Wait until so many have come."""
        await eventually(lambda: len(self.deliveries) >= count, seconds=seconds)


class Worker:
    """Acknowledges what it gets."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.consumer: Consumer | None = None
        self._acks: set[asyncio.Task[None]] = set()

    def __call__(self, delivery: Delivery) -> None:
        self.bodies.append(delivery.body)
        task = asyncio.create_task(self._end(delivery))
        self._acks.add(task)
        task.add_done_callback(self._acks.discard)

    async def _end(self, delivery: Delivery) -> None:
        await delivery.ack()
        if self.consumer is not None:
            self.consumer.done()

    async def has(self, body: bytes, *, seconds: float = LIMIT) -> None:
        """Wait until this has come."""
        await eventually(lambda: body in self.bodies, seconds=seconds)


def message(subject: str = PRIORITY_SUBJECT, body: bytes = b"{}", **changes: Any) -> Message:
    """Return a message with an id of its own."""
    chosen: dict[str, Any] = {"id": str(uuid.uuid4()), "headers": {"Grns-Workspace": "default"}}
    return Message(subject=subject, body=body, **(chosen | changes))


async def send(transport: JetStream, wanted: Message, done: Done) -> None:
    """Post a message as soon as there is room for it, as the relay does."""
    try:
        await transport.ready()
    except GrnsError as error:
        done(error)
    else:
        transport.post(wanted, done)


async def insist(transport: JetStream, wanted: Message, *, seconds: float = LIMIT) -> Receipt:
    """Publish until it is stored, as the relay does."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await transport.publish(wanted)
        except UnavailableError:
            assert time.monotonic() < deadline, "it was never stored"
            await asyncio.sleep(0.05)


@pytest.fixture
async def transport(transport_factory: TransportFactory) -> JetStream:
    """A transport with its streams made."""
    return await transport_factory()


@pytest.fixture
async def brisk(transport_factory: TransportFactory) -> JetStream:
    """A transport that notices and redelivers within a second."""
    return await transport_factory(**BRISK)


# Publishing


async def test_a_message_is_stored_once_however_often_it_is_sent(transport: JetStream) -> None:
    wanted = message()
    first = await transport.publish(wanted)
    again = await transport.publish(wanted)
    assert first == Receipt(subjects.CMD_STREAM, first.seq, duplicate=False)
    assert again == Receipt(subjects.CMD_STREAM, first.seq, duplicate=True)
    assert (await transport.state(subjects.CMD_STREAM)).messages == 1


async def test_every_message_sent_is_answered_exactly_once(transport_factory: TransportFactory) -> None:
    transport = await transport_factory(relay_window=7)
    answers: dict[str, list[Receipt | GrnsError]] = {}
    for number in range(300):
        wanted = message(id=f"m-{number}")
        await send(transport, wanted, answers.setdefault(wanted.id, []).append)
    await eventually(lambda: all(answers.values()))
    assert all(isinstance(given[0], Receipt) and len(given) == 1 for given in answers.values())
    assert (await transport.state(subjects.CMD_STREAM)).messages == 300


async def test_as_many_as_there_is_room_for_are_sent_at_once(transport_factory: TransportFactory) -> None:
    transport = await transport_factory(relay_window=20)
    answers: list[Receipt | GrnsError] = []
    assert await transport.ready() == 20
    for posted in range(1, 20):
        transport.post(message(), answers.append)
        assert await transport.ready() in range(20 - posted, 21)
    await eventually(lambda: len(answers) == 19)
    left = 1000
    while left:
        for _ in range(room := min(left, await transport.ready())):
            transport.post(message(), answers.append)
        assert 0 < room <= 20
        left -= room
    await eventually(lambda: len(answers) == 1019)
    assert all(isinstance(answer, Receipt) for answer in answers)


async def test_sending_waits_for_room_in_the_window(
    transport_factory: TransportFactory, broker: Broker
) -> None:
    transport = await transport_factory(relay_window=3)
    answers: list[Receipt | GrnsError] = []
    broker.freeze()
    for _ in range(3):
        await send(transport, message(), answers.append)
    fourth = asyncio.create_task(send(transport, message(), answers.append))
    await asyncio.sleep(0.2)
    assert not fourth.done()
    assert answers == []
    broker.thaw()
    await fourth
    await eventually(lambda: len(answers) == 4)
    assert all(isinstance(answer, Receipt) for answer in answers)


async def test_what_was_not_confirmed_is_an_error_and_can_be_sent_again(
    transport_factory: TransportFactory, broker: Broker
) -> None:
    transport = await transport_factory(relay_window=50)
    answers: dict[str, list[Receipt | GrnsError]] = {f"m-{number}": [] for number in range(400)}

    async def send_all() -> None:
        for number, (name, given) in enumerate(answers.items()):
            await send(transport, message(id=name), given.append)
            if number == 200:
                halfway.set()

    halfway = asyncio.Event()
    sending = asyncio.create_task(send_all())
    await halfway.wait()
    await broker.kill()
    await eventually(lambda: not transport.is_connected)
    await broker.start()
    await sending
    await eventually(lambda: all(answers.values()))
    assert all(len(given) == 1 for given in answers.values())
    failed = [name for name, given in answers.items() if isinstance(given[0], GrnsError)]
    assert all(isinstance(answers[name][0], OutcomeUnknownError) for name in failed)
    for name in failed:
        await insist(transport, message(id=name))
    assert (await transport.state(subjects.CMD_STREAM)).messages == 400


async def test_a_lost_connection_is_told_at_once(transport: JetStream, broker: Broker) -> None:
    answers: list[Receipt | GrnsError] = []
    broker.freeze()
    await send(transport, message(), answers.append)
    await broker.kill()
    await eventually(lambda: answers, seconds=1)
    assert isinstance(answers[0], OutcomeUnknownError)


async def test_sending_waits_for_the_broker(transport: JetStream, broker: Broker) -> None:
    await broker.stop()
    await eventually(lambda: not transport.is_connected)
    answers: list[Receipt | GrnsError] = []
    sending = asyncio.create_task(send(transport, message(), answers.append))
    await asyncio.sleep(0.1)
    assert not sending.done()
    await broker.start()
    await sending
    await eventually(lambda: answers)
    assert isinstance(answers[0], Receipt)


async def test_closing_answers_what_is_open(transport: JetStream, broker: Broker) -> None:
    answers: list[Receipt | GrnsError] = []
    broker.freeze()
    await send(transport, message(), answers.append)
    await transport.close()
    await send(transport, message(), answers.append)
    assert [isinstance(answer, UnavailableError) for answer in answers] == [True, True]
    with pytest.raises(UnavailableError):
        await transport.publish(message())
    assert not transport.is_connected


async def test_closing_answers_those_who_wait_for_room(
    transport_factory: TransportFactory, broker: Broker
) -> None:
    transport = await transport_factory(relay_window=1)
    answers: list[Receipt | GrnsError] = []
    broker.freeze()
    sending = [asyncio.create_task(send(transport, message(), answers.append)) for _ in range(5)]
    await eventually(lambda: sending[0].done())
    await transport.close()
    await asyncio.gather(*sending)
    assert [isinstance(answer, UnavailableError) for answer in answers] == [True] * 5


async def test_without_a_stream_nothing_is_stored_and_no_room_is_lost(
    transport_factory: TransportFactory,
) -> None:
    transport = await transport_factory(relay_window=2, provision=False)
    for _ in range(5):
        with pytest.raises(UnavailableError) as caught:
            await transport.publish(message())
        assert not isinstance(caught.value, OutcomeUnknownError)
    await transport.provision()
    assert (await transport.publish(message())).seq == 1


async def test_a_full_lane_refuses_and_leaves_the_others_alone(transport_factory: TransportFactory) -> None:
    transport = await transport_factory(relay_window=2, nats_cmd_max_per_subject=3)
    answers: list[Receipt | GrnsError] = []
    for _ in range(10):
        await send(transport, message(), answers.append)
    await eventually(lambda: len(answers) == 10)
    assert sum(isinstance(answer, Receipt) for answer in answers) == 3
    refusals = [answer for answer in answers if isinstance(answer, BrokerRefusedError)]
    assert [refusal.code for refusal in refusals] == ["full"] * 7
    assert isinstance(await transport.publish(message(OTHER_SUBJECT)), Receipt)
    worker = Worker()
    await transport.consume(PRIORITY_SUBJECT, worker, depth=10)
    await stored(transport, subjects.CMD_STREAM, 1)
    assert isinstance(await transport.publish(message()), Receipt)


@pytest.mark.parametrize("size", ["body", "headers", "both"])
async def test_a_message_that_is_too_large_is_refused(transport: JetStream, size: str) -> None:
    most = transport.max_message_bytes
    wanted = {
        "body": message(body=b"x" * (most + 10_000)),
        "headers": message(headers={"X": "x" * (most + 10_000)}),
        "both": message(body=b"x" * most, headers={"X": "é" * 5_000}),
    }[size]
    with pytest.raises(BrokerRefusedError) as caught:
        await transport.publish(wanted)
    assert caught.value.code == "too_large"
    assert isinstance(await transport.publish(message(body=b"x" * most)), Receipt)


@pytest.mark.parametrize(
    "subject", ["", "cmd.a b", "cmd.a\r\nPUB evil 0\r\n\r\n", "cmd." + "x" * 5_000, "cmd.\t"], ids=ascii
)
async def test_a_bad_subject_is_refused_and_harms_nothing(transport: JetStream, subject: str) -> None:
    with pytest.raises(BrokerRefusedError) as caught:
        await transport.publish(message(subject))
    assert caught.value.code == "bad_subject"
    assert isinstance(await transport.publish(message()), Receipt)


# Consuming


async def test_a_delivery_says_what_was_sent(transport: JetStream) -> None:
    wanted = message(body=b'{"n": 1}', headers={"Grns-Task": "gr-1", "Status": "409"})
    receipt = await transport.publish(wanted)
    inbox = Inbox()
    await transport.consume(PRIORITY_SUBJECT, inbox, depth=1)
    await inbox.has(1)
    delivery = inbox.deliveries[0]
    assert (delivery.subject, delivery.body, delivery.delivery_count) == (PRIORITY_SUBJECT, b'{"n": 1}', 1)
    assert (delivery.stream, delivery.stream_seq) == (subjects.CMD_STREAM, receipt.seq)
    assert (delivery.headers["Grns-Task"], delivery.headers["Status"]) == ("gr-1", "409")


async def test_an_ack_ends_it(transport: JetStream) -> None:
    await transport.publish(message())
    inbox = Inbox()
    await transport.consume(PRIORITY_SUBJECT, inbox, depth=1)
    await inbox.has(1)
    await inbox.deliveries[0].ack()
    await stored(transport, subjects.CMD_STREAM, 0)
    assert len(inbox.deliveries) == 1


async def test_only_the_first_end_counts(transport: JetStream) -> None:
    await transport.publish(message())
    inbox = Inbox()
    consumer = await transport.consume(PRIORITY_SUBJECT, inbox, depth=1)
    await inbox.has(1)
    await inbox.deliveries[0].nak(0.2)
    await inbox.deliveries[0].ack()
    consumer.done()
    await inbox.has(2)


async def test_a_nak_brings_it_back_after_the_delay(transport: JetStream) -> None:
    await transport.publish(message())
    inbox = Inbox()
    consumer = await transport.consume(PRIORITY_SUBJECT, inbox, depth=1)
    await inbox.has(1)
    await inbox.deliveries[0].nak()
    consumer.done()
    await inbox.has(2)
    await inbox.deliveries[1].nak(0.4)
    consumer.done()
    await inbox.has(3)
    assert [delivery.delivery_count for delivery in inbox.deliveries] == [1, 2, 3]
    assert inbox.at[1] - inbox.at[0] < 0.3
    assert inbox.at[2] - inbox.at[1] >= 0.39


async def test_a_term_ends_it_without_effect(transport: JetStream) -> None:
    await transport.publish(message())
    inbox = Inbox()
    consumer = await transport.consume(PRIORITY_SUBJECT, inbox, depth=1)
    await inbox.has(1)
    await inbox.deliveries[0].term("not\r\nJSON: é" + "x" * 5_000)
    consumer.done()
    await stored(transport, subjects.CMD_STREAM, 0)
    await transport.publish(message(body=b"next"))
    await inbox.has(2)
    assert inbox.bodies[1] == b"next"


async def test_what_nobody_ends_is_delivered_again(brisk: JetStream) -> None:
    await brisk.publish(message())
    inbox = Inbox()
    await brisk.consume(PRIORITY_SUBJECT, inbox, depth=2)
    await inbox.has(2)
    assert [delivery.delivery_count for delivery in inbox.deliveries] == [1, 2]
    assert inbox.at[1] - inbox.at[0] >= 0.9


async def test_a_sign_of_life_keeps_it_also_from_another_connection(
    transport_factory: TransportFactory,
) -> None:
    holder, other = await transport_factory(**BRISK), await transport_factory(**BRISK)
    for number in range(2):
        await holder.publish(message(body=b"%d" % number))
    inbox = Inbox()
    await holder.consume(PRIORITY_SUBJECT, inbox, depth=10)
    await inbox.has(2)
    for _ in range(6):
        await asyncio.sleep(0.25)
        await inbox.deliveries[0].in_progress()
        await other.in_progress([inbox.deliveries[1].token])
    assert len(inbox.deliveries) == 2
    await inbox.deliveries[0].ack()
    await inbox.has(3)
    assert inbox.bodies[2] == b"1"


async def test_no_more_than_depth_is_held_and_done_makes_room(transport: JetStream) -> None:
    for number in range(20):
        await transport.publish(message(body=b"%d" % number))
    inbox = Inbox()
    consumer = await transport.consume(PRIORITY_SUBJECT, inbox, depth=5)
    await inbox.has(5)
    for _ in range(3):  # time for the broker to send too much
        await transport.state(subjects.CMD_STREAM)
    assert len(inbox.deliveries) == 5
    for delivery in inbox.deliveries[:2]:
        await delivery.ack()
        consumer.done()
    await inbox.has(7)
    for _ in range(3):
        await transport.state(subjects.CMD_STREAM)
    assert len(inbox.deliveries) == 7
    consumer.set_depth(20)
    await inbox.has(20)
    assert inbox.bodies == [b"%d" % number for number in range(20)]


async def test_a_smaller_depth_leaves_the_rest_to_others(transport_factory: TransportFactory) -> None:
    shy, eager = await transport_factory(), await transport_factory()
    few, many = Inbox(), Inbox()
    consumer = await shy.consume(PRIORITY_SUBJECT, few, depth=10)
    for number in range(2):
        await shy.publish(message(body=b"%d" % number))
    await few.has(2)
    consumer.set_depth(3)
    await eager.consume(PRIORITY_SUBJECT, many, depth=10)
    for number in range(2, 9):
        await shy.publish(message(body=b"%d" % number))
    await eventually(lambda: len({*few.bodies, *many.bodies}) == 9, seconds=2)
    assert len(few.deliveries) <= 3


async def test_what_comes_beyond_a_shrinking_depth_goes_back(transport_factory: TransportFactory) -> None:
    shy, eager = await transport_factory(), await transport_factory()
    few, many = Inbox(), Inbox()
    consumer = await shy.consume(PRIORITY_SUBJECT, few, depth=10)
    await shy.publish(message(body=b"0"))
    await few.has(1)
    for depth in (9, 8, 2):  # so fast that a request for more may be with the broker
        consumer.set_depth(depth)
        await shy.state(subjects.CMD_STREAM)
    for number in range(1, 6):
        await shy.publish(message(body=b"%d" % number))
    await eager.consume(PRIORITY_SUBJECT, many, depth=100)
    await eventually(lambda: len({*few.bodies, *many.bodies}) == 6, seconds=2)
    assert len(few.deliveries) <= 2


async def test_depth_zero_pauses(transport_factory: TransportFactory) -> None:
    paused, other = await transport_factory(), await transport_factory()
    none, all_of_it = Inbox(), Inbox()
    consumer = await paused.consume(PRIORITY_SUBJECT, none, depth=10)
    consumer.set_depth(0)
    await other.consume(PRIORITY_SUBJECT, all_of_it, depth=10)
    for _ in range(5):
        await other.publish(message())
    await all_of_it.has(5, seconds=2)
    for delivery in all_of_it.deliveries:
        await delivery.ack()
    assert none.deliveries == []
    assert not consumer.is_failing
    consumer.set_depth(2)
    for _ in range(20):
        await other.publish(message())
    await none.has(2)


async def test_a_paused_subject_is_delivered_to_nobody_until_it_goes_on(
    transport_factory: TransportFactory,
) -> None:
    worker, operator = await transport_factory(), await transport_factory()
    inbox, others = Inbox(), Inbox()
    assert not await operator.pause(PRIORITY_SUBJECT, seconds=60.0), "nobody serves it yet"
    consumer = await worker.consume(PRIORITY_SUBJECT, inbox, depth=10)
    await worker.consume(OTHER_SUBJECT, others, depth=10)
    for _ in range(2):
        assert await operator.pause(PRIORITY_SUBJECT, seconds=60.0)
    for subject in (PRIORITY_SUBJECT, OTHER_SUBJECT):
        await operator.publish(message(subject))
    await others.has(1)
    for _ in range(3):  # time for the broker to send too much
        await operator.state(subjects.CMD_STREAM)
    assert inbox.deliveries == []
    assert not consumer.is_failing
    for _ in range(2):
        assert await operator.pause(PRIORITY_SUBJECT, seconds=0.0)
    await inbox.has(1)


async def test_a_durable_says_how_it_is(transport: JetStream) -> None:
    assert await transport.durable(PRIORITY_SUBJECT) is None
    inbox = Inbox()
    consumer = await transport.consume(PRIORITY_SUBJECT, inbox, depth=2)
    for _ in range(5):
        await transport.publish(message())
    await inbox.has(2)

    async def counts_all() -> bool:  # for a moment the server may count one that it has sent as neither
        found = await transport.durable(PRIORITY_SUBJECT)
        return found is not None and (found.pending, found.ack_pending, found.paused_seconds) == (3, 2, 0.0)

    await harness.eventually(counts_all)
    assert await transport.pause(PRIORITY_SUBJECT, seconds=60.0)
    found = await transport.durable(PRIORITY_SUBJECT)
    assert found is not None
    assert 50 < found.paused_seconds <= 60
    await consumer.stop()


async def test_a_pause_of_a_subject_ends_by_itself(transport: JetStream) -> None:
    inbox = Inbox()
    await transport.consume(PRIORITY_SUBJECT, inbox, depth=10)
    assert await transport.pause(PRIORITY_SUBJECT, seconds=1.0)
    await transport.publish(message())
    await inbox.has(1)


async def test_who_may_only_check_pauses_nothing(transport_factory: TransportFactory) -> None:
    worker = await transport_factory()
    checker = await transport_factory(provision=False, nats_manage="verify")
    inbox = Inbox()
    await worker.consume(PRIORITY_SUBJECT, inbox, depth=10)
    assert not await checker.pause(PRIORITY_SUBJECT, seconds=60.0)
    await worker.publish(message())
    await inbox.has(1)


async def test_stopping_strands_nothing(transport_factory: TransportFactory) -> None:
    leaver, stayer = await transport_factory(), await transport_factory(relay_window=200)
    early, late = Inbox(), Inbox()
    consumer = await leaver.consume(PRIORITY_SUBJECT, early, depth=1000)
    failures: list[GrnsError] = []

    def done(answer: Receipt | GrnsError) -> None:
        if isinstance(answer, GrnsError):
            failures.append(answer)

    for number in range(200):
        await send(stayer, message(body=b"%d" % number), done)
    await early.has(50)
    stopping = asyncio.create_task(consumer.stop())
    for number in range(200, 600):
        await send(stayer, message(body=b"%d" % number), done)
    await stopping
    held = len(early.deliveries)
    await stayer.consume(PRIORITY_SUBJECT, late, depth=1000)
    await eventually(lambda: len({*early.bodies, *late.bodies}) == 600, seconds=3)
    assert failures == []
    assert len(early.deliveries) == held
    for delivery in early.deliveries:  # what it held it may still end
        await delivery.ack()
    for delivery in late.deliveries:
        await delivery.ack()
    await stored(stayer, subjects.CMD_STREAM, 0)


async def test_a_callback_that_fails_costs_no_place(transport: JetStream) -> None:
    seen: list[int] = []
    inbox = Inbox()

    def fail_once(delivery: Delivery) -> None:
        seen.append(delivery.delivery_count)
        if len(seen) == 1:
            raise ValueError("boo")
        inbox(delivery)

    await transport.consume(PRIORITY_SUBJECT, fail_once, depth=1)
    await transport.publish(message())
    await inbox.has(1)
    assert seen == [1, 2]


async def test_two_consumers_share_the_work(transport_factory: TransportFactory) -> None:
    one, two = await transport_factory(), await transport_factory()
    first, second = Worker(), Worker()
    first.consumer = await one.consume(PRIORITY_SUBJECT, first, depth=5)
    second.consumer = await two.consume(PRIORITY_SUBJECT, second, depth=5)
    for number in range(100):
        await one.publish(message(body=b"%d" % number))
    await eventually(lambda: len(first.bodies) + len(second.bodies) == 100)
    assert first.bodies
    assert second.bodies
    assert len({*first.bodies, *second.bodies}) == 100


async def test_a_subject_of_nobody_cannot_be_consumed(transport: JetStream) -> None:
    with pytest.raises(InvalidInputError):
        await transport.consume("what.is.this", Inbox(), depth=1)


# Faults


async def killed(broker: Broker) -> None:
    await broker.kill()
    await broker.start()


async def restarted(broker: Broker) -> None:
    await broker.stop()
    await broker.start()


async def frozen(broker: Broker) -> None:
    broker.freeze()
    await asyncio.sleep(3)
    broker.thaw()


async def frozen_long(broker: Broker) -> None:
    broker.freeze()
    await asyncio.sleep(6)
    broker.thaw()


async def wiped(broker: Broker) -> None:
    await broker.wipe()


async def durable_deleted(broker: Broker) -> None:
    await broker.delete_durable(subjects.CMD_STREAM, subjects.durable(PRIORITY_SUBJECT))


async def stream_deleted(broker: Broker) -> None:
    await broker.delete_stream(subjects.CMD_STREAM)


@pytest.mark.parametrize(
    ("fault", "lease_seconds"),
    [
        (killed, 15.0),
        (restarted, 15.0),
        (frozen, 3.0),
        (frozen_long, 15.0),
        (wiped, 15.0),
        (durable_deleted, 15.0),
        (stream_deleted, 15.0),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_a_consumer_recovers(
    transport_factory: TransportFactory, broker: Broker, fault: Fault, lease_seconds: float
) -> None:
    transport = await transport_factory(lease_seconds=lease_seconds)
    worker = Worker()
    worker.consumer = await transport.consume(PRIORITY_SUBJECT, worker, depth=10)
    await transport.publish(message(body=b"before"))
    await worker.has(b"before")
    await fault(broker)
    await insist(transport, message(body=b"after"))
    await worker.has(b"after", seconds=5)
    await eventually(lambda: worker.consumer is not None and not worker.consumer.is_failing)


async def test_a_consumer_asks_again_as_soon_as_it_is_connected(transport: JetStream, broker: Broker) -> None:
    worker = Worker()
    worker.consumer = await transport.consume(PRIORITY_SUBJECT, worker, depth=10)
    await killed(broker)
    await eventually(lambda: not transport.is_connected)
    await eventually(lambda: transport.is_connected)
    await insist(transport, message(body=b"after"))
    await worker.has(b"after", seconds=0.5)


async def test_a_consumer_says_that_it_fails(transport: JetStream, broker: Broker) -> None:
    consumer = await transport.consume(PRIORITY_SUBJECT, Inbox(), depth=10)
    assert not consumer.is_failing
    await broker.kill()
    await eventually(lambda: consumer.is_failing)
    assert not transport.is_connected
    await broker.start()
    await eventually(lambda: not consumer.is_failing)
    assert transport.is_connected


async def test_a_consumer_can_be_made_while_the_broker_is_away(transport: JetStream, broker: Broker) -> None:
    await broker.stop()
    await eventually(lambda: not transport.is_connected)
    worker = Worker()
    worker.consumer = await transport.consume(PRIORITY_SUBJECT, worker, depth=10)
    assert worker.consumer.is_failing
    await broker.start()
    await insist(transport, message(body=b"after"))
    await worker.has(b"after")


async def test_a_consumer_can_be_stopped_while_the_broker_is_away(
    transport: JetStream, broker: Broker
) -> None:
    consumer = await transport.consume(PRIORITY_SUBJECT, Inbox(), depth=10)
    await broker.stop()
    await eventually(lambda: not transport.is_connected)
    await asyncio.wait_for(consumer.stop(), 3)


async def test_ends_survive_a_lost_connection(brisk: JetStream, broker: Broker) -> None:
    inbox = Inbox()
    await brisk.consume(PRIORITY_SUBJECT, inbox, depth=10)
    await brisk.publish(message())
    await inbox.has(1)
    await broker.kill()
    await eventually(lambda: not brisk.is_connected)
    await inbox.deliveries[0].ack()
    await inbox.deliveries[0].in_progress()
    await brisk.in_progress([inbox.deliveries[0].token])
    await broker.start()
    await eventually(lambda: brisk.is_connected)
    await stored(brisk, subjects.CMD_STREAM, 0)


# Connecting and provisioning


async def test_no_broker_is_told_with_what_to_do(transport_factory: TransportFactory, broker: Broker) -> None:
    await broker.stop()
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="GRNS_NATS_URL"):
        await transport_factory(nats_startup_seconds=0.5)
    assert time.monotonic() - began < 2


async def test_connecting_waits_for_a_broker_that_starts(
    transport_factory: TransportFactory, broker: Broker
) -> None:
    await broker.stop()
    connecting = asyncio.ensure_future(transport_factory())
    await asyncio.sleep(0.3)
    await broker.start()
    assert (await connecting).is_connected


async def test_streams_are_made_once_whoever_is_first(transport_factory: TransportFactory) -> None:
    several = [await transport_factory(provision=False) for _ in range(3)]
    made = await asyncio.gather(*(one.provision() for one in several))
    assert any(made)
    assert await several[0].provision() is False
    states = [await one.state(subjects.EVT_STREAM) for one in several]
    assert len({state.epoch for state in states}) == 1


async def test_a_wiped_broker_has_another_epoch(transport: JetStream, broker: Broker) -> None:
    await transport.publish(message(EVENT))
    before = await transport.state(subjects.EVT_STREAM)
    assert (before.last_seq, before.messages) == (1, 1)
    await restarted(broker)
    await eventually(lambda: transport.is_connected)
    assert await transport.state(subjects.EVT_STREAM) == before
    await broker.wipe()
    await eventually(lambda: transport.is_connected)
    with pytest.raises(NotFoundError):
        await transport.state(subjects.EVT_STREAM)
    assert await transport.provision() is True
    after = await transport.state(subjects.EVT_STREAM)
    assert after.epoch != before.epoch
    assert (after.last_seq, after.messages) == (0, 0)


async def test_settings_are_applied_and_the_epoch_stays(transport_factory: TransportFactory) -> None:
    small = await transport_factory(nats_evt_max_bytes=10_000_000)
    before = await small.state(subjects.EVT_STREAM)
    large = await transport_factory(nats_evt_max_bytes=20_000_000)
    assert await large.state(subjects.EVT_STREAM) == before
    checker = await transport_factory(provision=False, nats_manage="verify", nats_evt_max_bytes=20_000_000)
    assert await checker.provision() is False


async def test_verify_reports_and_changes_nothing(transport_factory: TransportFactory) -> None:
    checker = await transport_factory(provision=False, nats_manage="verify", nats_evt_max_bytes=20_000_000)
    with pytest.raises(DriftError, match="GRNS_CMD does not exist"):
        await checker.provision()
    with pytest.raises(NotFoundError):
        await checker.state(subjects.CMD_STREAM)
    maker = await transport_factory(nats_evt_max_bytes=10_000_000)
    with pytest.raises(DriftError, match="GRNS_EVT: max_bytes is 10000000, grns expects 20000000"):
        await checker.provision()
    with pytest.raises(DriftError, match="does not exist"):
        await checker.consume(PRIORITY_SUBJECT, Inbox(), depth=1)
    await maker.consume(PRIORITY_SUBJECT, Inbox(), depth=1)
    inbox = Inbox()
    await checker.consume(PRIORITY_SUBJECT, inbox, depth=1)
    await maker.publish(message())


async def test_a_durable_with_another_filter_is_an_error(transport: JetStream, broker: Broker) -> None:
    name = subjects.durable(PRIORITY_SUBJECT)
    config = {"name": name, "durable_name": name, "ack_policy": "explicit", "filter_subject": OTHER_SUBJECT}
    await broker.manage(
        f"CONSUMER.CREATE.{subjects.CMD_STREAM}.{name}",
        {"stream_name": subjects.CMD_STREAM, "config": config},
    )
    with pytest.raises(DriftError, match=name):
        await transport.consume(PRIORITY_SUBJECT, Inbox(), depth=1)
    info = await broker.manage(f"CONSUMER.INFO.{subjects.CMD_STREAM}.{name}")
    assert info["config"]["filter_subject"] == OTHER_SUBJECT


# Hints, observers, subscribers


async def test_a_nudge_is_heard_also_after_the_broker_came_back(transport: JetStream, broker: Broker) -> None:
    heard: list[str] = []
    await transport.on_nudge(subjects.RELAY_NUDGE, lambda: heard.append("nudge"))
    await transport.nudge(subjects.RELAY_NUDGE)
    await eventually(lambda: heard)
    await broker.kill()
    await eventually(lambda: not transport.is_connected)
    await transport.nudge(subjects.RELAY_NUDGE)
    await broker.start()
    await eventually(lambda: transport.is_connected)
    heard.clear()
    await transport.nudge(subjects.RELAY_NUDGE)
    await eventually(lambda: heard)
    await transport.close()
    await transport.nudge(subjects.RELAY_NUDGE)


async def test_an_observer_sees_what_is_published(transport_factory: TransportFactory) -> None:
    observer, publisher = await transport_factory(), await transport_factory()
    seen: list[tuple[str, bytes, Mapping[str, str]]] = []
    await publisher.publish(message(EVENT, b"earlier"))
    await observer.observe("evt.>", lambda *what: seen.append(what))
    await observer.state(subjects.EVT_STREAM)  # by now the broker knows of it
    await publisher.publish(message(EVENT, b"later"))
    await eventually(lambda: seen)
    assert [(subject, body) for subject, body, _ in seen] == [(EVENT, b"later")]
    assert seen[0][2]["Grns-Workspace"] == "default"


async def test_a_subscriber_starts_at_the_first_event_and_goes_on_where_it_was(
    transport_factory: TransportFactory,
) -> None:
    transport, again = await transport_factory(), await transport_factory()
    await transport.publish(message(EVENT, b"1"))
    await transport.publish(message("evt.task.completed.v1", b"2"))
    await transport.publish(message("evt.task.dead.v1", b"3"))
    wanted = [EVENT, "evt.task.dead.v1"]
    first, second = Inbox(), Inbox()
    consumer = await transport.subscribe("billing", wanted, first, depth=1)
    await first.has(1)
    await first.deliveries[0].ack()
    await consumer.stop()
    await transport.state(subjects.EVT_STREAM)  # by now the broker has read the ack
    await again.subscribe("billing", wanted, second, depth=10)
    await second.has(1)
    assert (first.bodies, second.bodies) == ([b"1"], [b"3"])
    with pytest.raises(DriftError):
        await again.subscribe("billing", [EVENT], second, depth=10)


@pytest.mark.parametrize(
    ("name", "filters"), [("a.b", [EVENT]), ("a", ["cmd.>"]), ("a", [">"]), ("", [EVENT])], ids=ascii
)
async def test_a_subscription_that_makes_no_sense_is_refused(
    transport: JetStream, name: str, filters: list[str]
) -> None:
    with pytest.raises(InvalidInputError):
        await transport.subscribe(name, filters, Inbox(), depth=1)


# What streams hold


async def test_the_last_message_is_the_newest_that_is_left(transport: JetStream) -> None:
    assert await transport.last_message(subjects.DLQ_STREAM) is None
    await transport.publish(message("dlq.task.dead.v1", b"1"))
    receipt = await transport.publish(message("dlq.task.failed.v1", b"\xff\x00", headers={"X": "é"}))
    last = await transport.last_message(subjects.DLQ_STREAM)
    assert last is not None
    assert (last.stream, last.seq, last.subject) == (
        subjects.DLQ_STREAM,
        receipt.seq,
        "dlq.task.failed.v1",
    )
    assert (last.body, last.headers["X"]) == (b"\xff\x00", "é")
    with pytest.raises(NotFoundError):
        await transport.last_message("NOTHING")


async def test_what_was_stored_between_two_moments_is_read_in_its_order(transport: JetStream) -> None:
    receipts = [
        await transport.publish(message("evt.task.dead.v1", str(number).encode())) for number in range(250)
    ]
    await transport.discard(subjects.EVT_STREAM, receipts[120].seq)
    ages = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
    whole = [one async for one in transport.stored(subjects.EVT_STREAM, since=ages[0], until=ages[1])]
    assert [int(one.body) for one in whole] == [number for number in range(250) if number != 120]
    assert [one.seq for one in whole] == [one.seq for one in receipts if one.seq != receipts[120].seq]
    assert (await transport.state(subjects.EVT_STREAM)).first_at == whole[0].stored_at
    for first, last in [(0, 0), (100, 220), (119, 121), (248, 248)]:
        since, until = whole[first].stored_at, whole[last].stored_at
        part = [one async for one in transport.stored(subjects.EVT_STREAM, since=since, until=until)]
        assert part == [one for one in whole if since <= one.stored_at <= until]
    assert [one async for one in transport.stored(subjects.EVT_STREAM, since=ages[1], until=ages[1])] == []
    assert [one async for one in transport.stored(subjects.DLQ_STREAM, since=ages[0], until=ages[1])] == []
    assert (await transport.state(subjects.DLQ_STREAM)).first_at is None
    with pytest.raises(NotFoundError):
        [one async for one in transport.stored("NOTHING", since=ages[0], until=ages[1])]


@pytest.fixture
async def lonely(transport: JetStream) -> list[int]:
    """Messages, the second and the third of them on subjects that nobody serves."""
    await transport.consume(PRIORITY_SUBJECT, Inbox(), depth=1)
    await transport.consume(subjects.shared_execute(), Inbox(), depth=1)
    wanted = [
        subjects.shared_execute(),
        "cmd.agent.planner.plan.v1",
        "cmd.other.v1",
        PRIORITY_SUBJECT,
        OTHER_SUBJECT,
    ]
    return [(await transport.publish(message(subject))).seq for subject in wanted][1:3]


async def test_what_nobody_serves_is_found_and_can_be_discarded(
    transport: JetStream, lonely: list[int]
) -> None:
    found = await transport.unserved(subjects.CMD_STREAM, older_than_seconds=0)
    assert [one.seq for one in found] == lonely
    assert [one.subject for one in found] == ["cmd.agent.planner.plan.v1", "cmd.other.v1"]
    assert await transport.unserved(subjects.CMD_STREAM, older_than_seconds=60) == []
    await transport.discard(subjects.CMD_STREAM, lonely[0])
    await transport.discard(subjects.CMD_STREAM, lonely[0])
    left = await transport.unserved(subjects.CMD_STREAM, older_than_seconds=0)
    assert [one.seq for one in left] == lonely[1:]
