"""A continuous pull: the broker always holds a request of ours while there is room for deliveries.

nats-py's `fetch` does not notice a lost server, a deleted durable or missing heartbeats until
its timeout, and is slower. Demand is one number: minus one for each message, minus what a request
gives back when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from nats.aio.msg import Msg

from grns.errors import GrnsError
from grns.model.subjects import MOST_ENVELOPES
from grns.nats.connection import Connection, OnFact
from grns.nats.delivery import ACK_PREFIX, Delivery, parts_of
from grns.nats.provision import NANOSECONDS
from grns.nats.subscription import NatsSubscription, new_inbox
from grns.telemetry import failpoint

_SETTLE_SECONDS = 2.0


class DeliveryInbox:
    """The subject where deliveries arrive. With a new one the broker drops the requests made for the last."""

    def __init__(self, connection: Connection, on_message: Callable[[Msg], None]) -> None:
        self._connection = connection
        self._on_message = on_message
        self._subscription: NatsSubscription | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""

    async def renew(self) -> None:
        """Subscribe to a new subject instead of the last one."""
        address = new_inbox(self._connection.inbox_prefix)
        subscription = await self._connection.subscribe(f"{address}.*", self._on_message)
        self._retire()
        self._subscription, self.address = subscription, address

    async def close(self) -> None:
        """Unsubscribe, and return deliveries that still arrive to the broker."""
        self._retire()
        while self._tasks:  # messages come out of the subscription while it drains
            _, late = await asyncio.wait(set(self._tasks), timeout=_SETTLE_SECONDS)
            if late:
                return

    def give_back(self, message: Msg) -> None:
        """Return a message to the broker, for another consumer."""
        if message.reply.startswith(ACK_PREFIX):
            self.run(Delivery(self._connection, message).nak())

    def _retire(self) -> None:
        if self._subscription is not None:
            self._subscription.handler = self.give_back
            self.run(self._connection.unsubscribe(self._subscription))
            self._subscription = None

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Send something; an error is as if it had got lost."""

        async def run() -> None:
            with contextlib.suppress(GrnsError):
                await coroutine

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_EXPIRES_SECONDS = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_RECALL_SECONDS = 0.1
_STOP_SECONDS = 2.0
_GIVEN_BACK = "Nats-Pending-Messages"
_WEIGHT = 0.1  # of one message in the mean number of envelopes


class Consumer:
    """A running subscription to one durable."""

    def __init__(
        self,
        connection: Connection,
        durable: str,
        *,
        ensure: Callable[[], Awaitable[None]],
        on_delivery: Callable[[Delivery], None],
        depth: int,
        heartbeat_seconds: float,
        on_fact: OnFact,
        is_split: bool = False,
    ) -> None:
        """With `is_split`, each envelope of a message is a delivery, and `depth` counts envelopes."""
        self._connection = connection
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{durable}"
        self._ensure = ensure
        self._on_delivery = on_delivery
        self._fact = on_fact
        self._durable = durable
        self._heartbeat = heartbeat_seconds
        self._depth = depth
        self._held = 0
        self._requested = 0  # messages
        self._is_split = is_split
        self._per_message = float(MOST_ENVELOPES if is_split else 1)
        # Tags requests, so that a late status of an earlier one is not taken for one of a later one.
        self._generation = 0
        self._heard = time.monotonic()
        self._recalled = 0.0
        self._doubt: str | None = None
        self._failures = 0
        self._last_reason = ""
        self._stopping = False
        self._inbox = DeliveryInbox(connection, self._receive)
        self._kick = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    @property
    def is_failing(self) -> bool:
        """True while nothing can be fetched: the broker is away, or the stream or durable is missing."""
        return not self._connection.is_connected or self._doubt is not None or self._failures > 1

    def set_depth(self, depth: int) -> None:
        """Hold at most `depth` unfinished deliveries and return further ones; 0 pauses fetching."""
        self._depth = max(0, depth)
        if self._should_pull or self._has_excess:
            self._kick.set()

    def done(self, count: int = 1) -> None:
        """Count deliveries as ended, so that others may be fetched."""
        self._held = max(0, self._held - count)
        if self._should_pull:
            self._kick.set()

    async def start(self, *, doubt: str | None = None) -> None:
        """Begin to fetch. With a `doubt`, first repair the durable, as often as that takes."""
        await self._inbox.renew()
        self._connection.on_connected.append(self._begin_anew)
        if doubt is not None:
            self._suspect(doubt)
        self._loop = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop fetching; return unhandled deliveries to the broker. Deliveries in use can still be ended."""
        if self._stopping:
            return
        self._stopping = True
        self._kick.set()
        if self._begin_anew in self._connection.on_connected:
            self._connection.on_connected.remove(self._begin_anew)
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait({self._loop}, timeout=_STOP_SECONDS)
        await self._inbox.close()

    # The loop

    async def _run(self) -> None:
        self._kick.set()
        while not self._stopping:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RECALL_SECONDS if self._has_excess else self._heartbeat):
                    await self._kick.wait()
            self._kick.clear()
            if self._stopping or not self._connection.is_connected:
                continue
            try:
                await self._turn()
            except Exception as error:  # a loop that ended would be a consumer that looks alive
                self._doubt = None
                self._suspect(str(error) or type(error).__name__)

    async def _turn(self) -> None:
        now = time.monotonic()
        if self._requested and now - self._heard > 2 * self._heartbeat:
            self._suspect("missed heartbeats")
        if self._doubt is not None:
            await self._repair()
        if self._has_excess and now - self._recalled > _RECALL_SECONDS:
            self._recalled = now
            await self._recall()
        if self._should_pull:
            await self._pull()

    @property
    def _should_pull(self) -> bool:
        room = self._room
        return room > 0 and (self._requested == 0 or room >= self._depth // 2)

    @property
    def _room(self) -> float:
        return self._depth - self._held - self._requested * self._per_message

    @property
    def _has_excess(self) -> bool:
        """True where the broker still holds requests for more than there is room."""
        return self._requested > 0 and self._held + self._requested > self._depth

    async def _pull(self) -> None:
        batch = max(1, int(self._room / self._per_message))
        if self._requested == 0:
            self._heard = time.monotonic()
        self._requested += batch
        expires, heartbeat = int(_EXPIRES_SECONDS * NANOSECONDS), int(self._heartbeat * NANOSECONDS)
        request = b'{"batch":%d,"expires":%d,"idle_heartbeat":%d}' % (batch, expires, heartbeat)
        self._connection.publish(self._subject, request, reply=f"{self._inbox.address}.{self._generation}")

    async def _recall(self) -> None:
        """Withdraw requests for more than there is room now. Not often: it costs a subscription."""
        self._forget_requests()
        await self._inbox.renew()

    # Repairs

    def _suspect(self, reason: str) -> None:
        """Forget the outstanding requests, and repair the durable in the next turn."""
        self._forget_requests()
        self._kick.set()
        if self._doubt is None:
            self._doubt = reason
            self._failures += 1
            if reason != self._last_reason:
                self._last_reason = reason
                self._fact("consumer_failing", {"durable": self._durable, "reason": reason})

    async def _repair(self) -> None:
        """Recreate the durable if needed, and use a new inbox: the broker may still hold older requests."""
        if self._failures > 1:
            pause = min(_FIRST_PAUSE * 2 ** min(self._failures - 2, 10), _LONGEST_PAUSE)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        await self._ensure()
        await self._inbox.renew()
        self._doubt = None
        self._fact("consumer_repaired", {"durable": self._durable})

    def _is_well(self) -> None:
        self._failures = 0
        self._last_reason = ""

    def _forget_requests(self) -> None:
        self._requested = 0
        self._generation += 1

    def _begin_anew(self) -> None:
        """Request again at once: requests end with their connection."""
        self._forget_requests()
        self._doubt, self._failures = None, 0
        self._heard = time.monotonic()
        self._kick.set()

    # Messages and statuses

    def _receive(self, message: Msg) -> None:
        self._heard = time.monotonic()
        if message.reply.startswith(ACK_PREFIX):  # not by the header: a message may have its own `Status`
            self._requested = max(0, self._requested - 1)
            self._is_well()
            self._hand_over(message)
        else:
            self._hear(message)

    def _hand_over(self, message: Msg) -> None:
        if self._stopping or self._held >= self._depth:
            self._inbox.give_back(message)
            return
        delivery = Delivery(self._connection, message)
        deliveries = parts_of(delivery) if self._is_split else [delivery]
        self._held += len(deliveries)
        if self._is_split:
            self._per_message += _WEIGHT * (len(deliveries) - self._per_message)
        for each in deliveries:
            try:
                failpoint.reach("puller.received")
                self._on_delivery(each)
            except Exception as error:  # a bad callback must not cost a place
                self._held -= 1
                self._fact("callback_failed", {"error": f"{type(error).__name__}: {error}"})
                self._inbox.run(each.nak(1.0))
        if self._should_pull:
            self._kick.set()

    def _hear(self, message: Msg) -> None:
        """Handle a status: only its number means the same in all versions of the server."""
        headers = message.headers or {}
        status = headers.get("Status", "")
        if status == "100":
            self._is_well()
            return
        if message.subject != f"{self._inbox.address}.{self._generation}":
            return
        given_back = headers.get(_GIVEN_BACK, "")
        if status == "404":
            self._requested = 0
        elif given_back.isdecimal() and status in ("408", "409"):
            self._requested = max(0, self._requested - int(given_back))
            if status == "408":
                self._is_well()
        else:
            self._suspect(f"{status} {headers.get('Description', '').strip()}")
        self._kick.set()
