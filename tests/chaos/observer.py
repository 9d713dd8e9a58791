"""Somebody who follows `evt.>` and `dlq.>` with a plain client, and writes down all that the broker tells.

`python -m tests.chaos.observer NATS_URL`; after SIGTERM it reads to the end, and ends. A stream that is
made again begins anew; where the broker was away, the observer goes on some way before the last message
that it has seen: its end may have been lost, and other messages have its numbers. How far it has heard
stands in `heard-<stream>.json`: what it has not heard yet is not for others to remove.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error, TimeoutError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from tests.chaos.journal import Journal
from tests.chaos.strangers import connect

_BATCH = 500
_PAUSE_SECONDS = 0.2
_STEP_BACK = 10_000


class Follower:
    """Reads one stream to its end, and on."""

    def __init__(self, stream: str, journal: Journal, directory: Path) -> None:
        self._stream = stream
        self._journal = journal
        self._heard = directory / f"heard-{stream}.json"
        self._life = ""
        self._next_seq = 1
        self.is_leaving = False
        self.has_left = False

    async def follow(self, client: Client) -> None:
        """Read until something goes wrong, or to the end where that is asked for."""
        stream = client.jetstream(timeout=3)
        if not self.is_leaving:
            self._next_seq = max(1, self._next_seq - _STEP_BACK)
        while True:
            info = await stream.stream_info(self._stream)
            life = str(info.created)
            if self.is_leaving and life == self._life and info.state.last_seq < self._next_seq:
                self.has_left = True
                return
            if life != self._life or info.state.last_seq < self._next_seq - 1:
                # Made again, or its end is gone: what is told now begins anew.
                self._life, self._next_seq = life, 1
                self._journal.note("life", stream=self._stream, life=life)
            config = ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=self._next_seq,
                ack_policy=AckPolicy.NONE,
                inactive_threshold=30.0,
            )
            source = await stream.pull_subscribe("", stream=self._stream, config=config)
            try:
                while True:
                    messages = await source.fetch(_BATCH, timeout=2)
                    for message in messages:
                        self._note(message)
                    self._tell()
            except TimeoutError:
                continue
            finally:
                with suppress(Error):
                    await source.unsubscribe()

    def _note(self, message: Msg) -> None:
        """Note each event of a message: one, or one a line."""
        headers = message.headers or {}
        self._next_seq = message.metadata.sequence.stream + 1
        for envelope in map(json.loads, message.data.split(b"\n")):
            self._journal.note(
                "seen",
                stream=self._stream,
                seq=message.metadata.sequence.stream,
                id=envelope["message_id"],
                kind=envelope["kind"],
                task=envelope.get("task_id", headers.get("Grns-Task")),
                version=int(envelope.get("version", headers.get("Grns-Version", 0))),
            )

    def _tell(self) -> None:
        """Say how far it has heard."""
        draft = self._heard.with_suffix(".draft")
        draft.write_text(json.dumps({"life": self._life, "seq": self._next_seq - 1}))
        draft.replace(self._heard)


async def follow_for_ever(follower: Follower, url: str) -> None:
    """Follow one stream, whatever becomes of the broker."""
    while not follower.has_left:
        with suppress(Error, OSError, asyncio.TimeoutError):
            client = await connect(url)
            try:
                await follower.follow(client)
            finally:
                with suppress(Error, OSError):
                    await client.close()
        await asyncio.sleep(_PAUSE_SECONDS)


async def main(url: str) -> None:
    """Follow both streams, and to their ends after SIGTERM."""
    directory = Path(os.environ["GRNS_CHAOS_DIRECTORY"])
    journal = Journal(directory / f"seen-{os.getpid()}.jsonl")
    followers = [Follower(stream, journal, directory) for stream in ("GRNS_EVT", "GRNS_DLQ")]

    def leave() -> None:
        for follower in followers:
            follower.is_leaving = True

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave)
    await asyncio.gather(*(follow_for_ever(follower, url) for follower in followers))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
