"""Lines that are made anew: with pauses, without harm from the old one, and everything listened to once."""

from __future__ import annotations

import time

import pytest

from grns.errors import BrokerRefused
from grns.transport.jetstream.watchdog import Pauses
from grns.transport.jetstream.wire import SUBJECT_LENGTH
from tests.test_jetstream import Connect, Facts, client_of, connect, eventually, extra_config, facts, server

__all__ = ["connect", "extra_config", "facts", "server"]  # fixtures

FACE = "\N{GRINNING FACE}"


# Pauses


def test_the_first_line_is_made_at_once_and_pauses_grow_until_one_lasts() -> None:
    pauses = Pauses()
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
        return [fields["error"] for name, fields in facts if name == "broker_line_rebuilt"]

    await eventually(lambda: len(rebuilt()) >= 4)
    assert time.monotonic() - began > (0.25 + 0.5) / 2
    assert all("maximum subscriptions exceeded" in error for error in rebuilt())
    assert len(rebuilt()) == 4


@pytest.mark.parametrize("subject", [FACE * 1000, "é" * SUBJECT_LENGTH, "\ud800", ""], ids=ascii)
async def test_what_is_too_long_in_bytes_is_no_subject(connect: Connect, subject: str) -> None:
    transport = await connect()
    with pytest.raises(BrokerRefused) as listening:
        await transport.observe(subject, lambda *_: None)
    with pytest.raises(BrokerRefused) as sending:
        transport._connection.publish(subject)
    assert listening.value.code == sending.value.code == "bad_subject"
    got: list[str] = []
    await transport.observe(FACE * (SUBJECT_LENGTH // 4), lambda subject, *_: got.append(subject))
    transport._connection.publish(FACE * (SUBJECT_LENGTH // 4))
    await eventually(lambda: got)
    assert not client_of(transport).is_closed
