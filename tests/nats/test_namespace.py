"""Installations that share an account of the broker: each has its streams, and hears of no other."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import nats
import pytest

from grns.dev.servers import LocalNats
from grns.errors import InvalidInputError, NotFoundError
from grns.model import subjects
from grns.nats import JetStream
from grns.nats.delivery import Delivery, Request
from grns.nats.messages import Message, Receipt
from grns.postgres.database import Database
from grns.settings import Settings, load
from tests.support.harness import LIMIT_SECONDS, Fleet, all_in, eventually, manage, ready, submit

PRIORITY_SUBJECT = subjects.priority_subject("default", "worker", 2)
DOOR = subjects.shared_execute()
QUEUED = subjects.message("evt.task.queued")


def settings(broker: LocalNats, namespace: str | None) -> Settings:
    """Return the settings of one installation."""
    return load(nats_url=broker.url, nats_namespace=namespace)


@asynccontextmanager
async def installed(broker: LocalNats, namespace: str | None) -> AsyncIterator[JetStream]:
    """Connect as one installation, with its streams made."""
    transport = JetStream(settings(broker, namespace), name="test")
    await transport.connect()
    try:
        assert await transport.provision()
        yield transport
    finally:
        await transport.close()


def message(subject: str, body: bytes = b"{}") -> Message:
    """Return a message with an id of its own."""
    return Message(subject, body, str(uuid.uuid4()), {})


async def heard(deliveries: list[Delivery], count: int) -> None:
    """Wait until so many deliveries have come."""

    async def look() -> bool:
        return len(deliveries) >= count

    await eventually(look)


async def names(broker: LocalNats) -> set[str]:
    """Return the names of all streams, as the broker knows them."""
    return set((await manage(broker.url, "STREAM.NAMES"))["streams"] or [])


async def test_two_installations_share_an_account_and_hear_nothing_of_each_other(broker: LocalNats) -> None:
    async with installed(broker, None) as ours, installed(broker, "staging") as theirs:
        assert await names(broker) == {
            *("GRNS_CMD", "GRNS_EVT", "GRNS_DLQ", "GRNS_OUT"),
            *("staging_GRNS_CMD", "staging_GRNS_EVT", "staging_GRNS_DLQ", "staging_GRNS_OUT"),
        }
        got: dict[str, list[Delivery]] = {"ours": [], "theirs": []}
        for name, transport in (("ours", ours), ("theirs", theirs)):
            for subject in (PRIORITY_SUBJECT, DOOR):
                await transport.consume(subject, got[name].append, depth=8)
            await transport.subscribe("billing", [QUEUED], got[name].append, depth=8)
            for subject in (PRIORITY_SUBJECT, DOOR, QUEUED):
                receipt = await transport.publish(message(subject, name.encode()))
                assert receipt == Receipt(subjects.STREAM_OF[subject[:3]], receipt.seq, False)
        for name, deliveries in got.items():
            await heard(deliveries, 3)
            assert {one.body for one in deliveries} == {name.encode()}
            assert {one.subject for one in deliveries} == {PRIORITY_SUBJECT, DOOR, QUEUED}
            assert {one.stream for one in deliveries} == {"GRNS_CMD", "GRNS_EVT"}
        assert not [found for stream in await theirs.report() for found in stream.drift]
        durables = [durable for stream in await theirs.report() for durable in stream.durables]
        assert {subject for durable in durables for subject in durable.subjects} == {
            f"staging_{subject}" for subject in (PRIORITY_SUBJECT, DOOR, QUEUED)
        }
        assert not [found for durable in durables for found in durable.drift]


async def test_what_a_stream_holds_is_told_in_our_own_names(broker: LocalNats) -> None:
    now = datetime.now(UTC)
    async with installed(broker, "staging") as transport:
        assert await transport.last_message(subjects.EVT_STREAM) is None
        receipt = await transport.publish(message(QUEUED))
        last = await transport.last_message(subjects.EVT_STREAM)
        assert last is not None
        assert (last.stream, last.subject, last.seq) == ("GRNS_EVT", QUEUED, receipt.seq)
        stretch = {"since": now - timedelta(minutes=5), "until": now + timedelta(minutes=5)}
        stored = [one.subject async for one in transport.stored(subjects.EVT_STREAM, **stretch)]
        assert stored == [QUEUED]

        for subject in (PRIORITY_SUBJECT, "cmd.agent.nobody.act.v1"):
            await transport.publish(message(subject))
        (lonely,) = await transport.unserved(subjects.CMD_STREAM, older_than_seconds=0.0)
        assert (lonely.stream, lonely.subject) == ("GRNS_CMD", "cmd.agent.nobody.act.v1"), "no lane's"
        await transport.discard(lonely.stream, lonely.seq)
        assert (await transport.state(subjects.CMD_STREAM)).messages == 1


async def test_hints_and_observers_stay_among_their_own(broker: LocalNats) -> None:
    async with installed(broker, None) as ours, installed(broker, "staging") as theirs:
        nudged: list[str] = []
        seen: list[tuple[str, bytes]] = []
        for name, transport in (("ours", ours), ("theirs", theirs)):
            await transport.on_nudge(subjects.RELAY_NUDGE, partial(nudged.append, name))
            await transport.observe("evt.>", lambda subject, body, _headers: seen.append((subject, body)))
        await theirs.nudge(subjects.RELAY_NUDGE)
        await theirs.publish(message(QUEUED, b"theirs"))

        async def look() -> bool:
            return len(nudged) + len(seen) >= 2

        await eventually(look)
        # Both have heard all that was meant for them, once a message of their own has come back.
        await ours.publish(message(QUEUED, b"ours"))

        async def look_again() -> bool:
            return len(seen) >= 2

        await eventually(look_again)
        assert nudged == ["theirs"]
        assert seen == [(QUEUED, b"theirs"), (QUEUED, b"ours")]


async def test_requests_are_answered_by_their_own_installation(broker: LocalNats) -> None:
    asked = subjects.request(subjects.SUBMIT)
    seen: list[str] = []

    def answering(name: str) -> Callable[[Request], None]:
        def answer(request: Request) -> None:
            seen.append(request.subject)
            request.answer(name.encode(), {})

        return answer

    client = await nats.connect(broker.url)
    try:
        async with installed(broker, None) as ours, installed(broker, "staging") as theirs:
            for name, transport in (("ours", ours), ("theirs", theirs)):
                await transport.serve(asked, "grns", answering(name))
                await transport.state(subjects.CMD_STREAM)  # the broker has heard of it
            for _ in range(20):  # shared, half of them would go astray
                assert (await client.request(asked, timeout=LIMIT_SECONDS)).data == b"ours"
                assert (await client.request(f"staging_{asked}", timeout=LIMIT_SECONDS)).data == b"theirs"
    finally:
        await client.close()
    assert set(seen) == {asked}, "in our own names"


async def test_a_pause_is_of_ones_own_durable(broker: LocalNats) -> None:
    async with installed(broker, None) as ours, installed(broker, "staging") as theirs:
        for transport in (ours, theirs):
            for subject in (PRIORITY_SUBJECT, DOOR):
                await (await transport.consume(subject, lambda _delivery: None, depth=1)).stop()
        for subject in (PRIORITY_SUBJECT, DOOR):
            assert await theirs.pause(subject, seconds=60.0)
        assert await paused(broker, "GRNS_CMD") == []
        assert await paused(broker, "staging_GRNS_CMD") == [f"staging_{DOOR}", f"staging_{PRIORITY_SUBJECT}"]
        assert await ours.pause(PRIORITY_SUBJECT, seconds=60.0)
        assert await theirs.pause(PRIORITY_SUBJECT, seconds=0.0)
        assert await paused(broker, "GRNS_CMD") == [PRIORITY_SUBJECT]
        assert await paused(broker, "staging_GRNS_CMD") == [f"staging_{DOOR}"]


async def paused(broker: LocalNats, stream: str) -> list[str]:
    """Return what the paused durables of a stream serve."""
    durables = (await manage(broker.url, f"CONSUMER.LIST.{stream}"))["consumers"]
    return sorted(one["config"]["filter_subject"] for one in durables if one.get("paused"))


async def test_only_streams_of_a_namespace_are_removed(broker: LocalNats) -> None:
    async with installed(broker, None) as ours, installed(broker, "staging") as theirs:
        await theirs.publish(message(QUEUED))
        await theirs.remove()
        assert await names(broker) == {"GRNS_CMD", "GRNS_EVT", "GRNS_DLQ", "GRNS_OUT"}
        with pytest.raises(NotFoundError):
            await theirs.state(subjects.EVT_STREAM)
        await theirs.remove()
        with pytest.raises(InvalidInputError, match="namespace"):
            await ours.remove()
        assert (await ours.state(subjects.EVT_STREAM)).messages == 0


@pytest.mark.parametrize("name", ["a.b", "a b", "", "*", "a" * 65])
def test_a_namespace_is_one_token(name: str) -> None:
    with pytest.raises(InvalidInputError, match="nats_namespace"):
        load(nats_namespace=name)


@pytest.mark.timeout(120)
async def test_a_task_goes_its_whole_way_in_a_namespace(
    fleet: Fleet, database: Database, broker: LocalNats
) -> None:
    fleet.start("server", GRNS_NATS_NAMESPACE="staging")
    worker = fleet.start("worker", "start", "tests.support.pools:pool", GRNS_NATS_NAMESPACE="staging")
    await ready(database, worker)
    submitted = await submit(database)
    await all_in(database, [submitted.id], within_seconds=30)

    async def is_told() -> bool:
        commands, events = await state(broker, "staging_GRNS_CMD"), await state(broker, "staging_GRNS_EVT")
        is_followed = commands["last_seq"] == 1 and not commands["messages"]
        return is_followed and events["messages"] == 3

    await eventually(is_told)
    assert await names(broker) == {
        f"staging_{name}" for name in ("GRNS_CMD", "GRNS_EVT", "GRNS_DLQ", "GRNS_OUT")
    }


async def state(broker: LocalNats, stream: str) -> dict[str, Any]:
    """Return what a stream says of itself, by its name at the broker."""
    found: dict[str, Any] = (await manage(broker.url, f"STREAM.INFO.{stream}"))["state"]
    return found
