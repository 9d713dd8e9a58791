"""What is read from the socket: headers as nats-py would read them, and only when somebody asks."""

from __future__ import annotations

import pytest
from nats.aio.client import Client

from grns.nats import patched_client
from grns.nats.messages import read_headers
from grns.nats.patched_client import Received

BLOCKS = (
    b"NATS/1.0\r\nNats-Msg-Id: 1\r\nGrns-Task: gr-1\r\n\r\n",
    b"NATS/1.0\r\nA:b:c\r\nEmpty:\r\n\r\n",
    b"NATS/1.0 404\r\n\r\n",
    b"NATS/1.0 404 No Messages\r\n\r\n",
    b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1016\r\nNats-Last-Stream: 1024\r\n\r\n",
    b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 7\r\nNats-Pending-Bytes: 0\r\n\r\n",
    b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 1\r\n\r\n",
    b"NATS/1.0 abc\r\n\r\n",
)


@pytest.mark.parametrize("block", BLOCKS)
async def test_headers_are_read_as_nats_reads_them(block: bytes) -> None:
    assert read_headers(block) == await Client()._process_headers(block)


@pytest.mark.parametrize(
    "block", [b"ABCD", b"NATS/1.0", b"NATS/1.0\r\nno header\r\n: x\r\n\r\n", b"x\r\n\xff: 1\r\n"]
)
def test_what_is_no_header_is_none(block: bytes) -> None:
    assert read_headers(block) == {}


def test_headers_are_taken_apart_when_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def read(block: bytes) -> dict[str, str]:
        asked.append(block)
        return {"A": "b"}

    monkeypatch.setattr(patched_client, "read_headers", read)
    message = Received(Client(), 1, "a.b", "reply", b"body", b"NATS/1.0\r\nA: b\r\n\r\n")
    assert (message.subject, message.reply, message.data, asked) == ("a.b", "reply", b"body", [])
    assert message.headers == message.headers == {"A": "b"}
    assert len(asked) == 1
    assert Received(Client(), 1, "a", "", b"", b"").headers is None
