"""The connection to the broker: subscriptions survive every client of nats-py."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from grns.errors import BrokerRefusedError, GrnsError, SettingsError, UnavailableError
from grns.nats.messages import HeaderLines, encode, size
from grns.nats.options import PENDING_BYTES, options
from grns.nats.patched_client import NatsClient, OnMessage, OnPlain
from grns.nats.subscription import NatsSubscription
from grns.settings import Settings

OnFact = Callable[[str, dict[str, Any]], None]


def ignore(_name: str, _fields: dict[str, Any]) -> None:
    """Ignore a fact."""


def harmless(on_fact: OnFact) -> OnFact:
    """Return `on_fact` with its exceptions suppressed: one would end nats-py's read loop."""

    def report(name: str, fields: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):
            on_fact(name, fields)

    return report


_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 5.0
_STEADY_SECONDS = 10.0


class WatchdogPauses:
    """Pauses before a new client: none, unless the last one did not last."""

    def __init__(self) -> None:
        self._longest = 0.0

    def next(self, *, lived_seconds: float) -> float:
        """Return the pause before the next client, after one that lived for so many seconds."""
        pause = 0.0 if lived_seconds >= _STEADY_SECONDS else self._longest
        self._longest = min(_LONGEST_PAUSE_SECONDS, max(_FIRST_PAUSE_SECONDS, 2 * pause))
        return pause * random.uniform(0.5, 1.0)


class ConnectionWatchdog:
    """Pings the server every few seconds; replaces a client that gets no answer.

    nats-py itself notices a dead connection late, and some never.
    """

    def __init__(
        self, *, lease_seconds: float, on_fact: OnFact, rebuild: Callable[[float], Awaitable[NatsClient]]
    ) -> None:
        # Together a third of a lease, so that a loss is noticed before the first renewal is missed.
        third = lease_seconds / 3
        self._period = min(4.0, max(0.5, 0.4 * third))
        self._patience = min(6.0, max(1.5, 0.6 * third))
        self._fact = on_fact
        self._rebuild = rebuild
        self._pauses = WatchdogPauses()
        self._since = math.inf
        self._wake = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self, client: NatsClient) -> None:
        """Start watching."""
        self._since = time.monotonic()
        self._task = asyncio.create_task(self._run(client))

    async def stop(self) -> None:
        """Stop watching."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=1)

    def check_now(self) -> None:
        """Check at once: nats-py has closed the client for good."""
        self._wake.set()

    async def _run(self, client: NatsClient) -> None:
        while not self._stopping:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._period):
                    await self._wake.wait()
            self._wake.clear()
            if self._stopping:
                return
            try:
                client = await self._check(client)
            except Exception as error:  # the watchdog must never end
                self._fact("broker_error", {"error": f"{type(error).__name__}: {error}"})

    async def _check(self, client: NatsClient) -> NatsClient:
        """Repair the client if needed, and return the client to watch from now on."""
        if client.is_gone:
            return await self._replace(client)
        if client.is_deaf or (client.is_connected and not await client.ping(within_seconds=self._patience)):
            self._fact("broker_deaf", {"server": client.server})
            await client.reconnect()
        elif not client.is_connected:
            client.abort_if_closing()
        return client

    async def _replace(self, client: NatsClient) -> NatsClient:
        pause = self._pauses.next(lived_seconds=time.monotonic() - self._since)
        self._since = math.inf  # an attempt that fails has not lived
        self._fact("broker_client_rebuilt", {"error": client.last_error})
        client = await self._rebuild(pause)
        self._since = time.monotonic()
        return client


Hook = Callable[[], None]

_LAST_PING_SECONDS = 1.0
_MOST_BACKLOG = 4 * 1024 * 1024
_DRAIN_SECONDS = 0.005


class Connection:
    """Owns the client of nats-py, and replaces it when nats-py gives up."""

    def __init__(self, settings: Settings, *, name: str, on_fact: OnFact) -> None:
        self._settings = settings
        self._name = name
        self.prefix = settings.nats_prefix  # of our streams and subjects at the broker
        self.inbox_prefix = settings.nats_inbox_prefix
        self._fact = on_fact
        self._client: NatsClient | None = None
        self._newest: NatsClient | None = None  # from before the first one is in use
        self._closing = False
        self._refused = asyncio.Event()
        self._up = asyncio.Event()
        self._last_error: Exception | None = None
        self._subscriptions: set[NatsSubscription] = set()
        self._watchdog = ConnectionWatchdog(
            lease_seconds=settings.lease_seconds, on_fact=on_fact, rebuild=self._rebuild
        )
        self.on_connected: list[Hook] = []
        self.on_disconnected: list[Hook] = []
        # Called with the error of the server in lower case: it does not answer a forbidden request itself.
        self.on_forbidden: list[Callable[[str], None]] = []

    @property
    def is_connected(self) -> bool:
        """True while there is a connection that is being read."""
        return self._client is not None and not self._closing and self._client.is_connected

    @property
    def max_payload(self) -> int:
        """The largest message, headers included, that the server accepts."""
        return 0 if self._client is None else self._client.client.max_payload

    @property
    def server_version(self) -> str:
        """The version of the server, for people."""
        return "unknown" if self._client is None else self._client.server_version

    async def open(self) -> None:
        """Connect within the startup deadline.

        Raises:
            UnavailableError: the server did not answer in time, or refused the user.
        """
        self._refused.clear()
        client = self._new_client()
        connecting = asyncio.create_task(client.connect())
        refused = asyncio.create_task(self._refused.wait())
        deadline = self._settings.nats_startup_seconds
        connected = False
        try:
            await asyncio.wait({connecting, refused}, timeout=deadline, return_when=asyncio.FIRST_COMPLETED)
            connected = connecting.done() and connecting.exception() is None
        finally:  # also if it connects in the moment of a cancellation
            refused.cancel()
            if not connected:
                connecting.cancel()
                await asyncio.wait({connecting})
                await client.close()
        if not connected:
            raise self._no_start(connecting)
        self._client = client
        self._watchdog.start(client)
        self._up.set()
        self._fact("broker_connected", {"server": client.server})

    async def close(self) -> None:
        """Close after the server has read all written bytes; never raises."""
        if self._closing:
            return
        if self.is_connected and self._client is not None:
            await self._client.ping(within_seconds=_LAST_PING_SECONDS)
        self._closing = True
        self._up.set()
        if self._client is None:
            return
        self._run(self.on_disconnected)
        await self._watchdog.stop()
        for subscription in list(self._subscriptions):
            await subscription.drop()
        await self._client.close()

    async def wait_connected(self) -> None:
        """Wait for a connection.

        Raises:
            UnavailableError: this connection is closed.
        """
        while not self.is_connected:
            if self._closing:
                raise UnavailableError("the connection to the broker is closed")
            self._up.clear()
            await self._up.wait()

    @property
    def is_congested(self) -> bool:
        """True while the socket has much to take that is written already."""
        return self._client is not None and self._client.backlog > _MOST_BACKLOG

    async def wait_drained(self) -> None:
        """Wait until the socket has taken most of the written bytes."""
        # nats-py has no event for it
        while self._client is not None and self._client.backlog > _MOST_BACKLOG and self._client.is_connected:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_SECONDS)

    def publish(
        self, subject: str, body: bytes = b"", *, reply: str = "", headers: HeaderLines | None = None
    ) -> None:
        """Write one message to the socket, or to the buffer while the server is away."""
        client = self._require()
        command = encode(subject, body, reply=reply, headers=headers)
        limit = client.client.max_payload
        # The server would close the connection on a larger one.
        if len(command) > limit and (bytes_sent := size(command)) > limit:
            raise BrokerRefusedError(
                "too_large",
                f"a message of {bytes_sent} bytes is more than the broker's {limit}",
            )
        if not client.is_connected:
            if client.is_gone:
                raise UnavailableError("the broker is away: reconnecting")
            if client.backlog + len(command) > PENDING_BYTES:
                raise UnavailableError("the broker is away, and the buffer of unsent messages is full")
        client.write(command)

    async def subscribe(
        self, subject: str, handler: OnMessage, on_plain: OnPlain | None = None, *, group: str = ""
    ) -> NatsSubscription:
        """Subscribe to a subject, also on later clients."""
        client = self._require()
        subscription = NatsSubscription(subject, handler, on_plain, group=group)
        self._subscriptions.add(subscription)
        if client.was_connected:  # else it is bound with all others on the connection
            try:
                await subscription.bind(client)
            except BaseException:
                self._subscriptions.discard(subscription)
                subscription.abandon()
                raise
        return subscription

    async def unsubscribe(self, subscription: NatsSubscription) -> None:
        """Unsubscribe; the handler still gets the messages that the server had sent."""
        self._subscriptions.discard(subscription)
        await subscription.drain()

    def _require(self) -> NatsClient:
        """Return the client, connected or not."""
        if self._client is None or self._closing:
            raise UnavailableError("the connection to the broker is not open")
        return self._client

    def _new_client(self) -> NatsClient:
        self._newest = client = NatsClient(options(self._settings, name=self._name), self._callbacks)
        return client

    def _callbacks(self, client: NatsClient) -> dict[str, Callable[..., Awaitable[None]]]:
        """Return the callbacks of one client. Those of a replaced client do nothing."""

        async def error(error: Exception) -> None:
            if client is self._newest:
                self._on_error(error)

        async def disconnected() -> None:
            client.forget_pings()
            if client is self._client and not self._closing:
                self._fact("broker_disconnected", {})
                self._run(self.on_disconnected)

        async def reconnected() -> None:
            if client is self._client:
                self._on_reconnected(client)

        async def closed() -> None:
            if client is self._client:
                self._watchdog.check_now()

        return {
            "error_cb": error,
            "disconnected_cb": disconnected,
            "reconnected_cb": reconnected,
            "closed_cb": closed,
        }

    def _no_start(self, connecting: asyncio.Task[None]) -> GrnsError:
        """Return the error for a failed start, with advice."""
        servers = self._settings.nats_hosts()
        if self._refused.is_set():
            return UnavailableError(
                f"the broker at {servers} refused the user: check GRNS_NATS_URL or GRNS_NATS_CREDENTIALS_FILE"
            )
        if not connecting.cancelled() and (failure := connecting.exception()) is not None:
            return SettingsError(f"cannot connect to {servers}: {failure}")
        return UnavailableError(
            f"no broker answered at {servers} within {self._settings.nats_startup_seconds:g} s"
            f" ({self._last_error or 'no answer'}): start one with `grns dev`, or set GRNS_NATS_URL"
        )

    async def _rebuild(self, pause_seconds: float) -> NatsClient:
        """Connect with a new client, however long it takes, and renew all subscriptions."""
        if self._client is not None:
            self._run(self.on_disconnected)
            await self._client.close()
        await asyncio.sleep(pause_seconds)
        self._client = client = self._new_client()
        await client.connect()
        for subscription in list(self._subscriptions):
            try:
                await subscription.bind(client)
            except BrokerRefusedError as error:  # must not prevent the other subscriptions
                self._subscriptions.discard(subscription)
                self._fact("broker_error", {"error": str(error)})
        self._on_reconnected(client)
        return client

    def _run(self, hooks: list[Hook]) -> None:
        for hook in hooks:
            hook()

    def _on_error(self, error: Exception) -> None:
        self._last_error = error
        text = str(error).lower()
        if "permissions violation" in text:
            for hook in self.on_forbidden:
                hook(text)
        elif "authorization violation" in text:
            self._refused.set()
        self._fact("broker_error", {"error": f"{type(error).__name__}: {error}"})

    def _on_reconnected(self, client: NatsClient) -> None:
        self._fact("broker_reconnected", {"server": client.server})
        self._up.set()
        self._run(self.on_connected)
