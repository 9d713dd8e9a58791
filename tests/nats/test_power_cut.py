"""Durables after a cut of the broker's power: what nats-server has not synced is gone, or in pieces."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from grns.dev.servers import LocalNats
from grns.errors import DriftError, UnavailableError
from grns.nats import JetStream
from grns.nats.consumer import Consumer
from grns.nats.delivery import Delivery
from tests.nats.test_jetstream import (
    PRIORITY_SUBJECT,
    Connect,
    Facts,
    connect,
    eventually,
    extra_config,
    facts,
    message,
    server,
)

__all__ = ["connect", "extra_config", "facts", "server"]  # fixtures

EVENT = "evt.task.queued.v1"
SUBJECTS = pytest.mark.parametrize("subject", [EVENT, PRIORITY_SUBJECT], ids=["subscriber", "pool"])


class Receiver:
    """Fetches by a durable, and acknowledges whatever comes."""

    def __init__(self, transport: JetStream, subject: str) -> None:
        self._transport = transport
        self._subject = subject
        self._acknowledging: list[asyncio.Future[None]] = []
        self.bodies: list[bytes] = []

    async def fetch(self) -> Consumer:
        """Begin."""
        if self._subject == EVENT:
            return await self._transport.subscribe("audit", [EVENT], self._take, depth=100)
        return await self._transport.consume(self._subject, self._take, depth=100)

    def _take(self, delivery: Delivery) -> None:
        self.bodies.append(delivery.body)
        self._acknowledging.append(asyncio.ensure_future(delivery.ack()))


async def publish(transport: JetStream, subject: str, word: str) -> list[bytes]:
    """Publish twenty messages, and return their bodies."""
    bodies = [b'"%s %d"' % (word.encode(), number) for number in range(20)]
    for body in bodies:
        await transport.publish(message(subject, body))
    return bodies


async def cut(connect: Connect, server: LocalNats, subject: str, damage: Callable[[Path], None]) -> JetStream:
    """Let a durable handle messages, and the broker come back as after a power cut; return a transport."""
    transport = await connect()
    await transport.provision()
    sent = await publish(transport, subject, "before")
    receiver = Receiver(transport, subject)
    await receiver.fetch()
    await eventually(lambda: receiver.bodies == sent)

    def is_written() -> bool:
        return any(path.stat().st_size for path in server.store.glob("**/obs/*/o.dat"))

    await eventually(is_written)
    await transport.close()
    await asyncio.to_thread(server.kill)
    (durable,) = server.store.glob("**/obs/*")
    (durable / "meta.inf").write_bytes(b"")
    damage(durable)
    await asyncio.to_thread(server.start)
    transport = await connect()
    await transport.provision()
    return transport


@SUBJECTS
async def test_durable_made_again_with_an_old_position_delivers_what_is_new(
    connect: Connect, server: LocalNats, facts: Facts, subject: str
) -> None:
    """R1: it took new messages for those that it had delivered before the cut, and never delivered them."""

    def lose_messages(durable: Path) -> None:
        shutil.rmtree(durable.parents[1] / "msgs")

    transport = await cut(connect, server, subject, lose_messages)
    sent = await publish(transport, subject, "after")
    receiver = Receiver(transport, subject)
    await receiver.fetch()
    await eventually(lambda: receiver.bodies == sent)
    assert "durable_with_old_position_deleted" in [name for name, _ in facts]


@SUBJECTS
async def test_durable_with_a_damaged_state_file_is_kept_in_memory(
    connect: Connect, server: LocalNats, facts: Facts, subject: str
) -> None:
    """R2: the server refused to make it for ever, and nothing was delivered."""
    transport = await cut(connect, server, subject, lambda durable: damage_state(durable))
    sent = await publish(transport, subject, "after")
    receiver = Receiver(transport, subject)
    await receiver.fetch()
    await eventually(lambda: set(sent) <= set(receiver.bodies))
    assert "durable_kept_in_memory" in [name for name, _ in facts]


def damage_state(durable: Path) -> None:
    """Leave what ext4 may leave of a file that was not synced."""
    (durable / "o.dat").write_bytes(bytes(10))


async def test_broker_with_too_little_storage_is_named(
    connect: Connect, facts: Facts, tmp_path: Path
) -> None:
    """R4: streams were refused, and events waited unseen."""
    small = f'jetstream {{ store_dir: "{tmp_path}/small", max_file_store: 1MB }}'
    with LocalNats(tmp_path / "small-nats", extra_config=small) as server:
        transport = await connect(nats_url=server.url)
        with pytest.raises(DriftError, match=r"10047.*give JetStream more room"):
            await transport.provision()
        assert "jetstream_out_of_room" in [name for name, _ in facts]


@pytest.mark.parametrize("extra_config", ["jetstream: false"])
async def test_broker_whose_jetstream_has_stopped_is_named(connect: Connect, facts: Facts) -> None:
    """R4: after a full disk nats-server runs without JetStream until somebody restarts it."""
    transport = await connect()
    with pytest.raises(UnavailableError):
        await transport.provision()
    assert "jetstream_out_of_room" in [name for name, _ in facts]


async def test_durable_that_exists_keeps_its_position(connect: Connect) -> None:
    """R1: only a durable that was never looked at is deleted for its position."""
    transport = await connect()
    await transport.provision()
    sent = await publish(transport, EVENT, "before")
    first = Receiver(transport, EVENT)
    consumer = await first.fetch()
    await eventually(lambda: first.bodies == sent)
    await consumer.stop()
    sent = await publish(transport, EVENT, "after")
    second = Receiver(transport, EVENT)
    await second.fetch()
    await eventually(lambda: len(second.bodies) >= len(sent))
    assert second.bodies == sent
