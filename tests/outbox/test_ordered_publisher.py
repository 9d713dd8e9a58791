"""What is on its way to the broker: a replay never keeps live rows from theirs."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import nats
import pytest
from nats.aio.msg import Msg

from grns.dev.servers import LocalNats
from grns.model.envelope import decode, traceparent
from grns.nats import JetStream
from grns.outbox.log import LogEntry
from grns.outbox.message import OutboxMessage
from grns.outbox.ordered_publisher import _REFUSED_RETRY_SECONDS, OrderedPublisher
from grns.telemetry.service_signals import MessageRefused
from grns.telemetry.signal import Signal
from tests.support.harness import eventually, manage, read_stream, settings_for
from tests.support.rude_responder import rude

_numbers = itertools.count(1)


def row(task_id: str | None, payload: str = "{}") -> LogEntry:
    """Return a row of the log."""
    return LogEntry(
        next(_numbers), 1, str(uuid4()), "default", task_id, "evt.task.completed", None, "t", None, payload,
        datetime.now(UTC),
    )  # fmt: skip


@asynccontextmanager
async def connected(broker: LocalNats, **settings: int) -> AsyncIterator[JetStream]:
    """Connect a transport, and have its streams made."""
    transport = JetStream(settings_for("postgresql://nowhere/x", broker.url, **settings), name="test")
    await transport.connect()
    await transport.provision()
    yield transport
    await transport.close()


@pytest.fixture
async def transport(broker: LocalNats) -> AsyncIterator[JetStream]:
    """A transport with its streams made."""
    async with connected(broker) as transport:
        yield transport


async def is_empty(outbound: OrderedPublisher) -> None:
    """Wait until nothing is on its way."""

    async def look() -> bool:
        return outbound.pending == 0

    await eventually(look)


@pytest.fixture
def done() -> list[int]:
    """The rows that are done, in their order."""
    return []


@asynccontextmanager
async def sending(outbound: OrderedPublisher) -> AsyncIterator[None]:
    """Let it send meanwhile."""
    running = asyncio.create_task(outbound.run())
    yield
    outbound.close()
    await running


@pytest.fixture
def told() -> list[Signal]:
    """What it has told."""
    return []


def make(transport: JetStream, told: list[Signal]) -> OrderedPublisher:
    """Return what sends through a transport."""
    return OrderedPublisher(
        transport=transport,
        on_receipt=lambda _receipt, _row: None,
        on_trouble=lambda: None,
        may_send=lambda: True,
        max_bytes=100_000,
        emit=told.append,
    )


@pytest.fixture
async def outbound(transport: JetStream, told: list[Signal]) -> AsyncIterator[OrderedPublisher]:
    """Parcels on their way to a broker."""
    outbound = make(transport, told)
    async with sending(outbound):
        yield outbound


@pytest.mark.parametrize("is_replay_first", [True, False])
async def test_a_live_row_behind_a_replay_of_its_task_does_not_wait_for_the_load_to_end(
    outbound: OrderedPublisher, done: list[int], is_replay_first: bool
) -> None:
    replays = [row("gr-a"), row("gr-a")]
    live = row("gr-a")
    newer = [row(f"gr-{number}") for number in range(5000)]
    outbound.add(OutboxMessage(newer[0], on_done=done.append))
    for entry in replays if is_replay_first else ():
        outbound.add(OutboxMessage(entry, is_replay=True))
    outbound.add(OutboxMessage(live, on_done=done.append))
    for entry in newer[1:]:
        while outbound.pending > 200:  # noqa: ASYNC110 - as the relay does: never idle, never all at once
            await asyncio.sleep(0)
        outbound.add(OutboxMessage(entry, on_done=done.append))
    await is_empty(outbound)
    assert sorted(done) == sorted([live.seq, *(entry.seq for entry in newer)])
    assert done.index(live.seq) < 2000


async def test_of_one_task_each_is_done_in_its_order(outbound: OrderedPublisher, done: list[int]) -> None:
    rows = [row("gr-a") for _ in range(50)]
    for entry in rows:
        outbound.add(OutboxMessage(entry, on_done=done.append))
    await is_empty(outbound)
    assert done == [entry.seq for entry in rows]


@pytest.mark.parametrize("task_id", ["gr-a", None, "gr-é", "gr-a\r\nEvil: 1", "a\nNats-Msg-Id: x"], ids=ascii)
async def test_a_row_goes_out_with_its_headers_and_no_others(
    outbound: OrderedPublisher, transport: JetStream, task_id: str | None
) -> None:
    entry = row(task_id)
    outbound.add(OutboxMessage(entry))
    await is_empty(outbound)
    stored = await transport.last_message("GRNS_EVT")
    assert stored is not None
    task = {} if task_id is None else {"Grns-Task": task_id.translate(str.maketrans("\r\n", "  "))}
    assert dict(stored.headers) == task | {
        "traceparent": traceparent("t", entry.message_id),
        "Grns-Workspace": "default",
        "Grns-Version": "1",
        "Grns-Seq": str(entry.seq),
        "Nats-Msg-Id": entry.message_id,
    }
    assert (stored.subject, decode(stored.body).payload) == ("evt.task.completed.v1", {})


async def test_nothing_is_sent_once_it_may_not_be_however_much_room_there_is(
    transport: JetStream, done: list[int]
) -> None:
    allowed = iter([True] * 3)
    outbound = OrderedPublisher(
        transport=transport,
        on_receipt=lambda _receipt, _row: None,
        on_trouble=lambda: None,
        may_send=lambda: next(allowed, False),
        max_bytes=100_000,
        emit=lambda _fact: None,
    )
    rows = [row(f"gr-{number}") for number in range(10)]
    for entry in rows:
        outbound.add(OutboxMessage(entry, on_done=done.append))
    async with sending(outbound):

        async def three_are_done() -> bool:
            return len(done) == 3

        await eventually(three_are_done)
        await transport.state("GRNS_EVT")
    assert done == [entry.seq for entry in rows[:3]]
    assert outbound.pending == 7


async def test_replays_alone_are_sent_too(outbound: OrderedPublisher, done: list[int]) -> None:
    for number in range(20):
        outbound.add(OutboxMessage(row(f"gr-{number % 3}"), is_replay=True))
    await is_empty(outbound)
    assert outbound.replays == 0
    assert done == []


async def test_nothing_new_waits_for_replays_to_be_read(
    transport: JetStream, done: list[int], told: list[Signal]
) -> None:
    """They are counted by themselves, in rows and in bytes."""
    outbound = make(transport, told)
    for number in range(50):
        outbound.add(OutboxMessage(row(f"gr-{number}", LARGE), is_replay=True))
    assert (outbound.replays, outbound.replay_bytes) == (50, 50 * len(LARGE))
    assert (outbound.in_flight, outbound.in_flight_bytes) == (0, 0)
    outbound.add(OutboxMessage(row("gr-0"), on_done=done.append))
    assert (outbound.in_flight, outbound.in_flight_bytes) == (1, 2)
    async with sending(outbound):
        await is_empty(outbound)
    assert (outbound.replays, outbound.replay_bytes, outbound.in_flight_bytes) == (0, 0, 0)


# ---------------------------------------------------------------- too large


LARGE = json.dumps({"filling": "x" * 20_000})


@pytest.fixture
def narrow(directory: Path) -> Iterator[LocalNats]:
    """A broker that takes small messages only."""
    with LocalNats(directory / f"nats-{uuid4().hex}", extra_config="max_payload: 16KB") as server:
        yield server


async def limit_stream(url: str, most_bytes: int) -> None:
    """Have the stream refuse larger messages, as its administrator may."""
    config = (await manage(url, "STREAM.INFO.GRNS_EVT"))["config"]
    await manage(url, "STREAM.UPDATE.GRNS_EVT", {**config, "max_msg_size": most_bytes})


def mixed_rows() -> list[LogEntry]:
    """Return rows of a few tasks, with some large ones between small ones of the same task."""
    return [row(f"gr-{task}", LARGE if turn in (1, 3) else "{}") for turn in range(5) for task in range(4)]


async def check_mixed(url: str, rows: Sequence[LogEntry]) -> None:
    """Check that each row is there once, the large ones as references, and each task's in their order."""
    heard = await read_stream(url, "GRNS_EVT")
    assert {one.headers["Nats-Msg-Id"] for one in heard} == {entry.message_id for entry in rows}
    assert len(heard) == len(rows)
    for task_id in {entry.task_id for entry in rows}:
        expected = [
            _reference(entry) if entry.payload == LARGE else {} for entry in rows if entry.task_id == task_id
        ]
        told = [one for one in heard if one.headers["Grns-Task"] == task_id]
        assert [one.body["payload"] for one in told] == expected
        assert [int(one.headers["Grns-Seq"]) for one in told] == sorted(
            entry.seq for entry in rows if entry.task_id == task_id
        )


def _reference(entry: LogEntry) -> dict[str, object]:
    return {
        "truncated": True,
        "ref": f"db://events/{entry.seq}",
        "task_id": entry.task_id,
        "message_id": entry.message_id,
    }


async def test_what_the_server_would_hang_up_on_goes_out_as_a_reference(
    narrow: LocalNats, done: list[int], told: list[Signal]
) -> None:
    async with connected(narrow) as transport, sending(made := make(transport, told)):
        for entry in (rows := mixed_rows()):
            made.add(OutboxMessage(entry, on_done=done.append))
        await is_empty(made)
    assert sorted(done) == [entry.seq for entry in rows]
    assert told == [], "it was not even tried"
    await check_mixed(narrow.url, rows)


async def test_what_the_stream_refuses_goes_out_as_a_reference_at_once(
    outbound: OrderedPublisher, broker: LocalNats, done: list[int], told: list[Signal]
) -> None:
    await limit_stream(broker.url, 8 * 1024)
    began_at = time.monotonic()
    for entry in (rows := mixed_rows()):
        outbound.add(OutboxMessage(entry, on_done=done.append))
    await is_empty(outbound)
    assert time.monotonic() - began_at < _REFUSED_RETRY_SECONDS / 2
    assert sorted(done) == [entry.seq for entry in rows]
    large = [entry.seq for entry in rows if entry.payload == LARGE]
    refused = [signal for signal in told if isinstance(signal, MessageRefused)]
    assert sorted((signal.seq, signal.code) for signal in refused) == [(seq, "too_large") for seq in large]
    await check_mixed(broker.url, rows)


async def test_what_is_refused_even_as_a_reference_holds_up_its_own_task_alone(
    broker: LocalNats, done: list[int], told: list[Signal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grns.outbox.ordered_publisher._REFUSED_RETRY_SECONDS", 0.5)
    async with connected(broker, relay_window=1) as transport, sending(made := make(transport, told)):
        small, large = row("gr-small"), row("gr-large", LARGE)
        # Not even a reference fits, only an empty row does.
        await limit_stream(broker.url, size_of(small) + 20)
        behind = row("gr-large")
        others = [row(f"gr-{number}") for number in range(200)]
        for entry in (large, behind, *others):
            made.add(OutboxMessage(entry, on_done=done.append))

        async def are_done() -> bool:
            return len(done) == len(others)

        await eventually(are_done)
        assert sorted(done) == [entry.seq for entry in others]
        assert made.pending == 2
        await limit_stream(broker.url, 8 * 1024)
        await is_empty(made)
    assert done[-2:] == [large.seq, behind.seq]


def size_of(entry: LogEntry) -> int:
    """Return how large a row is on the wire."""
    message = OutboxMessage(entry).made(100_000)
    return len(message.body) + len(str(message.headers)) + len(entry.message_id) + 64


async def test_an_answer_that_cannot_be_taken_in_ends_the_sending(
    transport: JetStream, done: list[int], told: list[Signal]
) -> None:
    """Else its row would stay on its way for ever, and all of its task behind it."""
    outbound = make(transport, told)
    outbound.add(OutboxMessage(row("gr-a"), on_done=_fail))
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(outbound.run(), 10.0)


def _fail(_number: int) -> None:
    raise ZeroDivisionError


# ---------------------------------------------------------------- streams that take nothing


async def test_a_stream_that_is_silent_does_not_occupy_the_window(
    broker: LocalNats, done: list[int], told: list[Signal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody listens there, so the server does not say that the stream is missing."""
    monkeypatch.setattr("grns.nats.client.ANSWER_SECONDS", 0.5)
    heard: list[str] = []

    async def hear(message: Msg) -> None:
        heard.append(message.subject)

    listener = await nats.connect(broker.url)
    async with connected(broker, relay_window=40) as transport, sending(made := make(transport, told)):
        config = (await manage(broker.url, "STREAM.INFO.GRNS_DLQ"))["config"]
        await manage(broker.url, "STREAM.DELETE.GRNS_DLQ")
        await listener.subscribe("dlq.>", cb=hear)
        await listener.request("$JS.API.INFO")  # comes after it
        letters = [row(f"gr-{number}")._replace(kind="dlq.task.dead") for number in range(500)]
        events = [row(f"gr-{number}") for number in range(500)]
        for entry in (*letters, *events):
            made.add(OutboxMessage(entry, on_done=done.append))

        async def have_gone_out() -> bool:
            return len(done) == len(events)

        await eventually(have_gone_out)
        assert set(done) == {entry.seq for entry in events}

        async def are_all_held() -> bool:  # but for those few that are being tried again
            return (made.held, made.in_flight) == (len(letters), 0)

        await eventually(are_all_held)
        assert 40 <= len(heard) < 250, "a few are tried, and not all of them all the time"
        await manage(broker.url, "STREAM.CREATE.GRNS_DLQ", config)
        await is_empty(made)
    await listener.close()
    assert (made.held, made.held_bytes, made.in_flight, made.in_flight_bytes) == (0, 0, 0, 0)
    assert {int(one.headers["Grns-Seq"]) for one in await read_stream(broker.url, "GRNS_DLQ")} == {
        entry.seq for entry in letters
    }


# ---------------------------------------------------------------- strangers who answer


@pytest.fixture
def slow(directory: Path) -> Iterator[LocalNats]:
    """A broker that writes each message to the disk before it answers: whoever else answers is first."""
    data = directory / f"nats-{uuid4().hex}"
    store = json.dumps(str(data / "slow"))
    config = f"jetstream {{ store_dir: {store}, max_file_store: 1TB, sync_interval: always }}"
    with LocalNats(data, extra_config=config) as server:
        yield server


async def test_only_the_stream_decides_however_fast_others_answer(
    slow: LocalNats, done: list[int], told: list[Signal]
) -> None:
    troubles: list[None] = []
    async with connected(slow) as transport, sending(made := make(transport, told)):
        made.on_trouble = lambda: troubles.append(None)
        rows = [row(f"gr-{number % 100}") for number in range(300)]
        async with rude(slow.url, "evt.>") as answered:
            for entry in rows:
                made.add(OutboxMessage(entry, on_done=done.append))
            await is_empty(made)

            async def have_heard_all() -> bool:
                return answered() == len(rows)

            await eventually(have_heard_all)
    assert not troubles
    assert sorted(done) == [entry.seq for entry in rows]
    heard = await read_stream(slow.url, "GRNS_EVT")
    assert sorted(int(one.headers["Grns-Seq"]) for one in heard) == [entry.seq for entry in rows]
