"""What is on its way to the broker: a replay never keeps live rows from theirs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from grns.envelope import decode, traceparent
from grns.local import LocalNats
from grns.outbound import Outbound, Parcel
from grns.store.log import Entry
from grns.telemetry import facts
from grns.transport.jetstream import JetStream
from tests.harness import eventually, settings_for

_numbers = itertools.count(1)


def row(task_id: str | None) -> Entry:
    """Return a row of the log."""
    return Entry(
        next(_numbers), 1, str(uuid4()), "default", task_id, "evt.task.completed", None, "t", None, "{}",
        datetime.now(UTC),
    )  # fmt: skip


@pytest.fixture
async def transport(broker: LocalNats) -> AsyncIterator[JetStream]:
    """A transport with its streams made."""
    transport = JetStream(settings_for("postgresql://nowhere/x", broker.url), name="test")
    await transport.connect()
    await transport.provision()
    yield transport
    await transport.close()


async def is_empty(outbound: Outbound) -> None:
    """Wait until nothing is on its way."""

    async def look() -> bool:
        return outbound.pending == 0

    await eventually(look)


@pytest.fixture
def done() -> list[int]:
    """The rows that are done, in their order."""
    return []


@asynccontextmanager
async def sending(outbound: Outbound) -> AsyncIterator[None]:
    """Let it send meanwhile."""
    running = asyncio.create_task(outbound.run())
    yield
    outbound.close()
    await running


@pytest.fixture
async def outbound(transport: JetStream, done: list[int]) -> AsyncIterator[Outbound]:
    """Parcels on their way to a broker."""
    told: list[facts.Fact] = []
    outbound = Outbound(
        transport=transport,
        on_done=done.append,
        on_receipt=lambda _receipt: None,
        on_trouble=lambda: None,
        may_send=lambda: True,
        max_bytes=100_000,
        emit=told.append,
    )
    async with sending(outbound):
        yield outbound


@pytest.mark.parametrize("is_replay_first", [True, False])
async def test_a_live_row_behind_a_replay_of_its_task_does_not_wait_for_the_load_to_end(
    outbound: Outbound, done: list[int], is_replay_first: bool
) -> None:
    replays = [row("gr-a"), row("gr-a")]
    live = row("gr-a")
    newer = [row(f"gr-{number}") for number in range(5000)]
    outbound.add(Parcel(newer[0]))
    for entry in replays if is_replay_first else ():
        outbound.add(Parcel(entry, is_replay=True))
    outbound.add(Parcel(live))
    for entry in newer[1:]:
        while outbound.pending > 200:  # noqa: ASYNC110 - as the relay does: never idle, never all at once
            await asyncio.sleep(0)
        outbound.add(Parcel(entry))
    await is_empty(outbound)
    assert sorted(done) == sorted([live.seq, *(entry.seq for entry in newer)])
    assert done.index(live.seq) < 2000


async def test_of_one_task_each_is_done_in_its_order(outbound: Outbound, done: list[int]) -> None:
    rows = [row("gr-a") for _ in range(50)]
    for entry in rows:
        outbound.add(Parcel(entry))
    await is_empty(outbound)
    assert done == [entry.seq for entry in rows]


@pytest.mark.parametrize("task_id", ["gr-a", None, "gr-é", "gr-a\r\nEvil: 1", "a\nNats-Msg-Id: x"], ids=ascii)
async def test_a_row_goes_out_with_its_headers_and_no_others(
    outbound: Outbound, transport: JetStream, task_id: str | None
) -> None:
    entry = row(task_id)
    outbound.add(Parcel(entry))
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
    outbound = Outbound(
        transport=transport,
        on_done=done.append,
        on_receipt=lambda _receipt: None,
        on_trouble=lambda: None,
        may_send=lambda: next(allowed, False),
        max_bytes=100_000,
        emit=lambda _fact: None,
    )
    rows = [row(f"gr-{number}") for number in range(10)]
    for entry in rows:
        outbound.add(Parcel(entry))
    async with sending(outbound):

        async def three_are_done() -> bool:
            return len(done) == 3

        await eventually(three_are_done)
        await transport.state("GRNS_EVT")
    assert done == [entry.seq for entry in rows[:3]]
    assert outbound.pending == 7


async def test_replays_alone_are_sent_too(outbound: Outbound, done: list[int]) -> None:
    for number in range(20):
        outbound.add(Parcel(row(f"gr-{number % 3}"), is_replay=True))
    await is_empty(outbound)
    assert outbound.replays == 0
    assert done == []
