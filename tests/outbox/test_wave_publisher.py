"""What the relay has read goes out in waves: of each task one row at a time in a stream."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from math import ceil
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grns.dev.servers import LocalNats
from grns.errors import GrnsError
from grns.model import subjects
from grns.nats import JetStream
from grns.nats.messages import Done, Message, Receipt
from grns.outbox.log import LogEntry
from grns.outbox.message import command_of, message_of, stream_key
from grns.outbox.ordered_publisher import OrderedPublisher
from grns.outbox.watermark import NumberRanges
from grns.outbox.wave_publisher import STREAMS, WavePublisher, chunks, waves
from tests.outbox.test_ordered_publisher import (
    LARGE,
    check_mixed,
    connected,
    limit_stream,
    mixed_rows,
    row,
    size_of,
)
from tests.support.harness import eventually, manage, read_stream

_KINDS = ("evt.task.queued", "evt.task.claimed", "evt.task.completed", "dlq.task.dead", "cmd.task.execute")


class Sending:
    """Publishers on a real broker, and what they have in flight."""

    def __init__(self, transport: JetStream, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
        self.done = NumberRanges(first - 1)
        self.in_flight: Counter[str] = Counter()
        self.most_of_one_task = 0
        self.most_rows = 0
        self.sent = 0
        self.allowed = 1_000_000
        self._keys: dict[str, str] = {}
        self._post = transport.post
        monkeypatch.setattr(transport, "post", self.post)
        self.ordered = OrderedPublisher(
            transport=transport,
            on_receipt=lambda _receipt, _row: None,
            on_trouble=lambda: None,
            may_send=self.may_send,
            max_bytes=100_000,
            emit=lambda _signal: None,
        )
        self.waves = WavePublisher(
            transport=transport,
            ordered=self.ordered,
            on_done=self.done.add_span,
            on_receipt=lambda _receipt, _row: None,
            on_trouble=lambda: None,
            may_send=self.may_send,
            max_bytes=100_000,
        )

    def may_send(self) -> bool:
        """Return whether one more may be sent."""
        return self.sent < self.allowed

    def add(self, *rows: LogEntry) -> None:
        """Have rows published, as one reading."""
        queued = [entry for entry in rows if entry.kind != subjects.EXECUTE and entry.route is not None]
        commands = [command_of(entry, entry.route or "") for entry in queued]
        self._keys |= {entry.message_id: stream_key(entry) for entry in (*rows, *commands)}
        self.waves.add(rows)

    def post(self, message: Message, done: Done) -> None:
        """Send a message, and note that its rows are in flight."""
        keys = [self._keys[json.loads(line)["message_id"]] for line in message.body.split(b"\n")]
        self.sent += 1
        self.in_flight.update(keys)
        self.most_of_one_task = max(self.most_of_one_task, *self.in_flight.values())
        self.most_rows = max(self.most_rows, len(keys))
        self._post(message, partial(self._answered, keys, done))

    def _answered(self, keys: Sequence[str], done: Done, answer: Receipt | GrnsError) -> None:
        self.in_flight.subtract(keys)
        done(answer)

    async def until_done(self, *rows: LogEntry) -> None:
        """Wait until all these are done and nothing is pending."""

        async def are_done() -> bool:
            return all(entry.seq in self.done for entry in rows)

        await eventually(are_done)
        assert (self.waves.pending, self.waves.pending_bytes, self.ordered.pending) == (0, 0, 0)
        assert self.waves.oldest_age_seconds == 0.0


@asynccontextmanager
async def _sending(
    broker: LocalNats, monkeypatch: pytest.MonkeyPatch, **settings: int
) -> AsyncIterator[Sending]:
    async with connected(broker, **settings) as transport:
        sending = Sending(transport, monkeypatch, row(None).seq + 1)
        senders = (sending.ordered.run(), *(sending.waves.run(stream) for stream in STREAMS))
        tasks = [asyncio.create_task(sender) for sender in senders]
        yield sending
        sending.ordered.close()
        sending.waves.close()
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [one for one in ended if isinstance(one, Exception)] == []


@pytest.fixture
async def sending(broker: LocalNats, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sending]:
    """Publishers on a broker of the test's own."""
    async with _sending(broker, monkeypatch) as sending:
        yield sending


def rows_of(tasks: int, turns: int) -> list[LogEntry]:
    """Return rows of some tasks in all streams, mixed."""
    return [
        row(f"gr-{task}", json.dumps({"task_id": f"gr-{task}"}))._replace(
            kind=kind, route="worker.p2" if kind.startswith("cmd") else None
        )
        for turn in range(turns)
        for task in range(tasks)
        for kind in _KINDS[: 1 + (turn + task) % len(_KINDS)]
    ]


async def test_of_one_task_one_row_is_in_flight(sending: Sending, broker: LocalNats) -> None:
    rows = rows_of(tasks=80, turns=6)
    sending.add(*rows[:200])
    sending.add(*rows[200:])
    await sending.until_done(*rows)
    assert sending.most_of_one_task == 1, "two of one task unanswered"
    assert sending.most_rows > 1, "many commands of a priority subject share messages"
    for stream in ("GRNS_EVT", "GRNS_CMD", "GRNS_DLQ"):
        heard = await read_stream(broker.url, stream)
        expected = [entry for entry in rows if stream.endswith(entry.kind[:3].upper())]
        assert len(heard) == len(expected)
        for task_id in {entry.task_id for entry in expected}:
            told = [one.headers["Nats-Msg-Id"] for one in heard if one.headers["Grns-Task"] == task_id]
            assert told == [entry.message_id for entry in expected if entry.task_id == task_id]


async def test_what_the_stream_refuses_holds_back_its_own_task_alone(
    sending: Sending, broker: LocalNats
) -> None:
    await limit_stream(broker.url, 8 * 1024)
    rows = mixed_rows()
    sending.add(*rows[:12])
    sending.add(*rows[12:])
    await sending.until_done(*rows)
    assert sending.most_of_one_task == 1
    await check_mixed(broker.url, rows)


async def test_rows_behind_a_refused_one_follow_it(
    broker: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grns.outbox.ordered_publisher._REFUSED_RETRY_SECONDS", 0.5)
    async with _sending(broker, monkeypatch, relay_window=1) as sending:
        small, large = row("gr-small"), row("gr-large", LARGE)
        await limit_stream(broker.url, size_of(small) + 20)  # not even a reference fits
        behind, later = row("gr-large"), row("gr-large")
        others = [row(f"gr-{number}") for number in range(100)]
        sending.add(small, large, behind, *others)

        async def others_are_done() -> bool:
            return all(entry.seq in sending.done for entry in others)

        await eventually(others_are_done)
        sending.add(later)
        await limit_stream(broker.url, 8 * 1024)
        await sending.until_done(large, behind, later)
        assert sending.most_of_one_task == 1
    heard = await read_stream(broker.url, "GRNS_EVT")
    told = [one.headers["Nats-Msg-Id"] for one in heard if one.headers["Grns-Task"] == "gr-large"]
    assert told == [large.message_id, behind.message_id, later.message_id]


async def test_nothing_is_sent_once_the_lease_is_over(sending: Sending, broker: LocalNats) -> None:
    sending.allowed = 3
    rows = [row(f"gr-{number % 4}") for number in range(10)]
    sending.add(*rows)

    async def all_are_handed_over() -> bool:
        return sending.waves.pending == 0

    await eventually(all_are_handed_over)
    assert (sending.sent, sending.ordered.pending) == (3, 7)
    assert len(await read_stream(broker.url, "GRNS_EVT")) == 3


async def test_a_missing_stream_does_not_hold_back_the_others(sending: Sending, broker: LocalNats) -> None:
    await manage_away(broker, "GRNS_DLQ")
    dead = [row(f"gr-{n}")._replace(kind="dlq.task.dead") for n in range(30)]
    ended = [row(f"gr-{n}") for n in range(30)]
    sending.add(*chain.from_iterable(zip(dead, ended, strict=True)))

    async def events_are_done() -> bool:
        return all(entry.seq in sending.done for entry in ended)

    await eventually(events_are_done, within_seconds=4.0)
    assert not any(entry.seq in sending.done for entry in dead)


@pytest.mark.parametrize("missing", [(), ("CMD",), ("EVT",), ("CMD", "EVT"), ("EVT", "CMD")])
async def test_a_row_is_done_once_the_broker_has_its_event_and_its_command(
    sending: Sending, broker: LocalNats, missing: Sequence[str]
) -> None:
    """Else a relay that dies between the two would leave one of them out for ever."""
    configs = [(await manage(broker.url, f"STREAM.INFO.GRNS_{stream}"))["config"] for stream in missing]
    for stream in missing:
        await manage_away(broker, f"GRNS_{stream}")
    rows = [
        row(f"gr-{n}", '{"reason" : "redriven"}')._replace(kind="evt.task.queued", route="worker.p2")
        for n in range(30)
    ]
    sending.add(*rows)
    for left, config in zip(range(len(missing), 0, -1), configs, strict=True):

        async def is_left(left: int = left) -> bool:
            return (sending.waves.pending, sending.ordered.pending) == (0, left * len(rows))

        await eventually(is_left, within_seconds=20.0)
        assert not any(entry.seq in sending.done for entry in rows)
        await manage(broker.url, f"STREAM.CREATE.{config['name']}", config)
    await sending.until_done(*rows)
    assert sending.most_of_one_task == 1
    events, commands = await read_stream(broker.url, "GRNS_EVT"), await read_stream(broker.url, "GRNS_CMD")
    assert {one.headers["Nats-Msg-Id"] for one in events} == {entry.message_id for entry in rows}
    assert {one.subject for one in events} == {"evt.task.queued.v1"}
    assert {one.subject for one in commands} == {"cmd.task.execute.v1.default.worker.p2"}
    assert sorted(one.body["payload"]["task_id"] for one in commands) == sorted(
        str(entry.task_id) for entry in rows
    )
    assert {one.body["payload"]["reason"] for one in commands} == {"redriven"}
    assert {one.body["causation_id"] for one in commands} == {entry.message_id for entry in rows}


async def manage_away(broker: LocalNats, stream: str) -> None:
    """Delete a stream, as an administrator may."""
    await manage(broker.url, f"STREAM.DELETE.{stream}")


def test_messages_of_other_rows_have_other_ids() -> None:
    """Else the broker drops a message whose row in the middle was not visible when it was first sent."""
    rows = [row(f"gr-{n}")._replace(kind="cmd.task.execute", route="worker.p2") for n in range(5)]
    sets = [rows[:4], [*rows[:2], *rows[3:]], rows]
    assert len({message_of(some).id for some in sets}) == len(sets)
    assert message_of(rows).id == message_of(list(rows)).id


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=60))
def test_waves_keep_all_rows_and_the_order_of_each_task(drawn: list[tuple[int, bool]]) -> None:
    rows = [row(f"gr-{task}" if has_task else None) for task, has_task in drawn]
    found = waves(rows)
    assert sorted(entry.seq for wave in found for entry in wave) == [entry.seq for entry in rows]
    for wave in found:
        keys = [stream_key(entry) for entry in wave]
        assert len(set(keys)) == len(keys)
    for key in {stream_key(entry) for entry in rows}:
        of_key = [entry.seq for wave in found for entry in wave if stream_key(entry) == key]
        assert of_key == sorted(of_key)


@given(
    st.lists(
        st.tuples(st.sampled_from(("evt.task.queued", "cmd.task.execute")), st.integers(0, 2)), max_size=30
    ),
    st.integers(1, 20),
)
def test_messages_have_rows_of_one_subject_in_their_order(drawn: list[tuple[str, int]], times: int) -> None:
    rows = [
        row(None)._replace(kind=kind, route=f"worker.p{priority}" if kind.startswith("cmd") else None)
        for kind, priority in drawn * times
    ]
    found = list(chunks(rows))
    assert sorted(entry.seq for chunk in found for entry in chunk) == [entry.seq for entry in rows]
    for chunk in found:
        assert len({(entry.kind, entry.route) for entry in chunk}) == 1
        assert [entry.seq for entry in chunk] == sorted(entry.seq for entry in chunk)
    for priority in range(3):
        messages = [chunk for chunk in found if chunk[0].route == f"worker.p{priority}"]
        commands = sum(map(len, messages))
        assert len(messages) == (ceil(commands / subjects.MOST_ENVELOPES) if commands >= 64 else commands)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("evt.task.queued", "evt.task.claimed", "dlq.task.dead")), st.integers(1, 30_000)
        ),
        max_size=60,
    ),
    st.integers(1, subjects.MOST_ENVELOPES),
)
def test_chunks_of_events_have_one_subject_and_stay_small(drawn: list[tuple[str, int]], most: int) -> None:
    rows = [row(None)._replace(kind=kind, payload="x" * size) for kind, size in drawn]
    found = list(chunks(rows, events_per_message=most))
    assert sorted(entry.seq for chunk in found for entry in chunk) == [entry.seq for entry in rows]
    for chunk in found:
        assert len({entry.kind for entry in chunk}) == 1
        assert 1 <= len(chunk) <= (most if chunk[0].kind.startswith("evt.") else 1)
        assert len(chunk) == 1 or sum(len(entry.payload) for entry in chunk) <= 64 * 1024
    for kind in ("evt.task.queued", "evt.task.claimed"):
        in_order = [entry.seq for chunk in found for entry in chunk if entry.kind == kind]
        assert in_order == sorted(in_order)


def test_a_task_named_like_a_message_has_a_place_of_its_own() -> None:
    assert [len(wave) for wave in waves([row(None), row(None), row(str(uuid4()))])] == [3]
