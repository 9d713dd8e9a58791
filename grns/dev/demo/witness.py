"""The witness: a plain subscriber of `evt.>`, who sees what any other system would see."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import nats
from nats.aio.msg import Msg

History = Mapping[int, str]


class Witness:
    """What was seen: the kind of each event by task and version; copies of a message count once."""

    def __init__(self) -> None:
        self.histories: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self.kinds: Counter[str] = Counter()
        self._seen: set[str] = set()

    async def see(self, message: Msg) -> None:
        """Take one message in."""
        headers = message.headers or {}
        message_id = headers.get("Nats-Msg-Id", "")
        if message_id in self._seen:
            return
        self._seen.add(message_id)
        kind = str(json.loads(message.data)["kind"])
        self.kinds[kind] += 1
        if "Grns-Task" in headers:
            self.histories[headers["Grns-Task"]][int(headers["Grns-Version"])] = kind

    def latest(self, task_id: str) -> int:
        """Return the highest version of a task that was seen."""
        return max(self.histories.get(task_id, {0: ""}))


@asynccontextmanager
async def watch(url: str) -> AsyncIterator[Witness]:
    """Watch until the end of the block, from now on."""
    witness = Witness()
    client = await nats.connect(url, name="grns demo witness")
    try:
        await client.subscribe("evt.>", cb=witness.see, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await client.flush()
        yield witness
    finally:
        await client.close()
