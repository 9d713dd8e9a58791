"""Where a puller's messages arrive."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from nats.aio.msg import Msg

from grns.errors import GrnsError
from grns.nats.connection import Connection
from grns.nats.delivery import ACK_PREFIX, JetStreamDelivery
from grns.nats.subscription import NatsSubscription, new_inbox

_SETTLE_SECONDS = 2.0


class Inbox:
    """A subject of our own. With a new one the broker drops the requests that were made for the last one."""

    def __init__(self, connection: Connection, on_message: Callable[[Msg], None]) -> None:
        self._connection = connection
        self._on_message = on_message
        self._subscription: NatsSubscription | None = None
        self._errands: set[asyncio.Task[None]] = set()
        self.address = ""

    async def renew(self) -> None:
        """Listen to a new subject instead of the last one."""
        address = new_inbox(self._connection.inbox_prefix)
        subscription = await self._connection.subscribe(f"{address}.*", self._on_message)
        self._retire()
        self._subscription, self.address = subscription, address

    async def close(self) -> None:
        """Stop listening, and give back what the broker had sent by then."""
        self._retire()
        while self._errands:  # messages come out of the subscription while it drains
            _, late = await asyncio.wait(set(self._errands), timeout=_SETTLE_SECONDS)
            if late:
                return

    def give_back(self, message: Msg, *, delay_seconds: float = 0.0) -> None:
        """Return a message to the broker, for somebody else."""
        if message.reply.startswith(ACK_PREFIX):
            self._run(JetStreamDelivery(self._connection, message).nak(delay_seconds))

    def _retire(self) -> None:
        if self._subscription is not None:
            self._subscription.handler = self.give_back
            self._run(self._connection.unsubscribe(self._subscription))
            self._subscription = None

    def _run(self, errand: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            with contextlib.suppress(GrnsError):
                await errand

        task = asyncio.create_task(run())
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)
