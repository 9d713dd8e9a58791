"""Somebody who answers whatever he hears, as some frameworks do out of habit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import nats
from nats.aio.msg import Msg

# What is no answer of a stream of ours, though some of it looks like one.
RUDE = (
    b"",
    b"+ACK",
    b"-NAK",
    b"no",
    b"null",
    b"[]",
    b"{}",
    b"\xff",
    b"1" * 5000,
    b"[" * 5000,
    b'{"hello": "world"}',
    b'{"stream": "x", "seq": 1}',
    b'{"stream": 1, "seq": 2}',
    b'{"stream": null, "seq": 2}',
    b'{"stream": ["GRNS_EVT"], "seq": 2}',
    b'{"stream": "GRNS_EVT"}',
    b'{"stream": "GRNS_EVT", "seq": "2"}',
    b'{"stream": "GRNS_EVT", "seq": true}',
    b'{"stream": "GRNS_DLQ", "seq": 2}',
    b'{"error": "no"}',
    b'{"error": null}',
    b'{"error": {"code": "x"}}',
    b'{"error": {"code": 500, "message": "no handler"}}',
    b'{"stream": "GRNS_EVT", "seq": 3, "error": {"code": 503}}',
    b'{"type": null}',
    b'{"type": ["io.nats.jetstream.api.v1.stream_info_response"]}',
    b'{"type": "stream_info_response", "config": {}}',
)


@asynccontextmanager
async def rude(url: str, subject: str) -> AsyncIterator[Callable[[], int]]:
    """Answer each message at once, in all these ways; yields how many have been answered."""
    stranger = await nats.connect(url)
    answered = 0

    async def answer(message: Msg) -> None:
        nonlocal answered
        if not message.reply:
            return
        for body in RUDE:
            await stranger.publish(message.reply, body)
            await stranger.publish(message.reply, body, headers={"Status": "400", "X": "y"})
        answered += 1

    await stranger.subscribe(subject, cb=answer)
    # Its own ping overtakes what it has not written yet; a message comes after it.
    own = await stranger.subscribe(stranger.new_inbox())
    await stranger.publish(own.subject)
    await own.next_msg(timeout=10.0)
    try:
        yield lambda: answered
    finally:
        await stranger.close()
