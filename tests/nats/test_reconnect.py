"""Lines that are made anew: with pauses, without harm from the old one, and everything listened to once."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from grns.dev.servers import LocalNats
from grns.errors import BrokerRefusedError
from grns.nats import JetStream
from grns.nats.connection import WatchdogPauses
from grns.nats.messages import SUBJECT_LENGTH
from tests.nats.test_jetstream import (
    LIMIT,
    Connect,
    Facts,
    client_of,
    connect,
    eventually,
    extra_config,
    facts,
    freeze,
    server,
)

__all__ = ["connect", "extra_config", "facts", "server"]  # fixtures

FACE = "\N{GRINNING FACE}"


# Pauses


def test_the_first_line_is_made_at_once_and_pauses_grow_until_one_lasts() -> None:
    pauses = WatchdogPauses()
    assert pauses.next(lived_seconds=0.0) == 0.0
    grown = [pauses.next(lived_seconds=1.0) for _ in range(8)]
    for pause, longest in zip(grown, [0.25, 0.5, 1, 2, 4, 5, 5, 5], strict=True):
        assert longest / 2 <= pause <= longest
    assert pauses.next(lived_seconds=60.0) == 0.0
    assert 0 < pauses.next(lived_seconds=float("-inf")) <= 0.25


@pytest.mark.parametrize("extra_config", ["max_subscriptions: 2"])
async def test_a_server_that_ends_every_line_is_not_stormed(
    connect: Connect, facts: Facts, extra_config: str
) -> None:
    transport = await connect(lease_seconds=15.0)
    began = time.monotonic()
    for number in range(4):
        await transport.observe(f"s.{number}", lambda *_: None)

    def rebuilt() -> list[str]:
        return [fields["error"] for name, fields in facts if name == "broker_client_rebuilt"]

    await eventually(lambda: len(rebuilt()) >= 4)
    assert time.monotonic() - began > (0.25 + 0.5) / 2
    assert all("maximum subscriptions exceeded" in error for error in rebuilt())
    assert len(rebuilt()) == 4


@pytest.mark.parametrize(
    "subject",
    [FACE * 1000, "é" * SUBJECT_LENGTH, "\ud800", ""],
    ids=["faces", "accents", "surrogate", "none"],
)
async def test_what_is_too_long_in_bytes_is_no_subject(connect: Connect, subject: str) -> None:
    transport = await connect()
    with pytest.raises(BrokerRefusedError) as listening:
        await transport.observe(subject, lambda *_: None)
    with pytest.raises(BrokerRefusedError) as sending:
        transport._connection.publish(subject)
    assert listening.value.code == sending.value.code == "bad_subject"
    got: list[str] = []
    await transport.observe(FACE * (SUBJECT_LENGTH // 4), lambda subject, *_: got.append(subject))
    transport._connection.publish(FACE * (SUBJECT_LENGTH // 4))
    await eventually(lambda: got)
    assert not client_of(transport).is_closed


# The line that was replaced


async def test_a_line_that_ends_late_does_not_harm_its_successor(
    connect: Connect, facts: Facts, server: LocalNats
) -> None:
    transport = await connect(lease_seconds=3.0)
    connection = transport._connection
    old = connection._client
    assert old is not None
    callbacks = dict(old._options)
    freeze(server)
    for _ in range(40):  # more than sockets hold
        connection.publish("nobody.listens", b"x" * 300_000)
    await old.client._process_err("'some error'")  # what the server had sent before it froze
    socket = old._writer.transport
    closed: list[float] = []
    waiting = asyncio.create_task(old._writer.wait_closed())
    waiting.add_done_callback(lambda _: closed.append(time.monotonic()))
    await eventually(lambda: connection._client is not old)
    assert socket.is_closing()
    assert closed  # given up, although the client was closing already
    with contextlib.suppress(OSError):
        await waiting
    server.thaw()
    await eventually(lambda: transport.is_connected)
    lost: list[str] = []
    connection.on_disconnected.append(lambda: lost.append("lost"))
    facts.clear()
    ping = connection._client and connection._client._begin(asyncio.sleep(LIMIT))
    assert ping
    await callbacks["error_cb"](RuntimeError("late"))
    await callbacks["disconnected_cb"]()
    await callbacks["reconnected_cb"]()
    await callbacks["closed_cb"]()
    await asyncio.sleep(0)
    assert not lost
    assert not facts
    assert not ping.done()
    assert transport.is_connected


# Everything is listened to once


async def hear_once(transport: JetStream, got: list[bytes]) -> None:
    """Check that what is published on `foo` is heard exactly once."""
    for body in (b"1", b"2"):
        transport._connection.publish("foo", body)
    await eventually(lambda: b"2" in got)
    await transport._connection.wait_drained()
    assert got == [b"1", b"2"]
    assert len(client_of(transport)._subs) == len(transport._connection._subscriptions)


async def test_what_is_listened_to_while_a_client_connects_is_heard_once(
    connect: Connect, server: LocalNats
) -> None:
    transport = await connect()
    connection = transport._connection
    old = connection._client
    await asyncio.to_thread(server.stop)
    await client_of(transport).close()  # what an -ERR does
    await eventually(lambda: connection._client is not old)
    got: list[bytes] = []
    await transport.observe("foo", lambda _subject, body, _headers: got.append(body))
    with pytest.raises(BrokerRefusedError):
        await transport.observe("foo..bar", lambda *_: None)
    await asyncio.to_thread(server.start)
    await connection.wait_connected()
    await hear_once(transport, got)


async def test_what_was_bound_half_way_when_the_line_ended_is_heard_once(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = await connect()
    connection = transport._connection
    old = connection._client
    client = client_of(transport)
    blocked = asyncio.Event()

    async def block(_subscription: object) -> None:
        await blocked.wait()

    monkeypatch.setattr(client, "_send_subscribe", block)
    got: list[bytes] = []
    known = len(client._subs)
    listening = asyncio.create_task(
        transport.observe("foo", lambda _subject, body, _headers: got.append(body))
    )
    await eventually(lambda: len(client._subs) > known)
    await client.close()
    await eventually(lambda: connection._client is not old and transport.is_connected)
    blocked.set()
    await listening
    await hear_once(transport, got)


async def test_nothing_is_left_of_what_could_not_be_bound(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = await connect()
    got: list[bytes] = []

    async def fail(_subscription: object) -> None:
        raise OSError("the socket broke")

    with monkeypatch.context() as patch:
        patch.setattr(client_of(transport), "_send_subscribe", fail)
        with pytest.raises(OSError, match="the socket broke"):
            await transport.observe("foo", lambda _subject, body, _headers: got.append(body))
    await transport.observe("foo", lambda _subject, body, _headers: got.append(body))
    await hear_once(transport, got)
