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
    """Take no notice of a fact."""


def harmless(on_fact: OnFact) -> OnFact:
    """Return `on_fact`, made unable to raise: nats-py's read loop ends for good when a callback does."""

    def tell(name: str, fields: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):
            on_fact(name, fields)

    return tell


_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 5.0
_STEADY_SECONDS = 10.0


class WatchdogPauses:
    """How long to wait before the line is made anew: not at all, unless the last one did not last."""

    def __init__(self) -> None:
        self._longest = 0.0

    def next(self, *, lived_seconds: float) -> float:
        """Return the pause before the next line, now that the last one is gone after this time."""
        pause = 0.0 if lived_seconds >= _STEADY_SECONDS else self._longest
        self._longest = min(_LONGEST_PAUSE_SECONDS, max(_FIRST_PAUSE_SECONDS, 2 * pause))
        return pause * random.uniform(0.5, 1.0)


class ConnectionWatchdog:
    """Every few seconds asks the server for a sign of life; replaces a line that has none."""

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

    def start(self, line: NatsClient) -> None:
        """Begin to watch."""
        self._since = time.monotonic()
        self._task = asyncio.create_task(self._run(line))

    async def stop(self) -> None:
        """Watch no more."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=1)

    def look(self) -> None:
        """Look at once: nats-py has closed the line for good."""
        self._wake.set()

    async def _run(self, line: NatsClient) -> None:
        while not self._stopping:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._period):
                    await self._wake.wait()
            self._wake.clear()
            if self._stopping:
                return
            try:
                line = await self._look_after(line)
            except Exception as error:  # whatever it was, somebody has to look again
                self._fact("broker_error", {"error": f"{type(error).__name__}: {error}"})

    async def _look_after(self, line: NatsClient) -> NatsClient:
        """Do what the line needs, and return the line to watch from now on."""
        if line.is_gone:
            return await self._replace(line)
        if line.is_deaf or (line.is_connected and not await line.answers(within_seconds=self._patience)):
            self._fact("broker_deaf", {"server": line.server})
            await line.redial()
        elif not line.is_connected:
            line.unstick()
        return line

    async def _replace(self, line: NatsClient) -> NatsClient:
        pause = self._pauses.next(lived_seconds=time.monotonic() - self._since)
        self._since = math.inf  # an attempt that fails has not lived
        self._fact("broker_line_rebuilt", {"error": line.last_error})
        line = await self._rebuild(pause)
        self._since = time.monotonic()
        return line


Hook = Callable[[], None]

_FAREWELL_SECONDS = 1.0
_MOST_BACKLOG = 4 * 1024 * 1024
_DRAIN_SECONDS = 0.005


class Connection:
    """Owns the line to the broker, and replaces it where nats-py gives up."""

    def __init__(self, settings: Settings, *, name: str, on_fact: OnFact) -> None:
        self._settings = settings
        self._name = name
        self.prefix = settings.nats_prefix  # of our streams and subjects, as the broker knows them
        self.inbox_prefix = settings.nats_inbox_prefix
        self._fact = on_fact
        self._line: NatsClient | None = None
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
        # Called with what the server said, in small letters: it does not answer a forbidden request itself.
        self.on_forbidden: list[Callable[[str], None]] = []

    @property
    def is_connected(self) -> bool:
        """True while there is a connection that is read from."""
        return self._line is not None and not self._closing and self._line.is_connected

    @property
    def max_payload(self) -> int:
        """The largest message, headers included, that the server takes."""
        return 0 if self._line is None else self._line.client.max_payload

    @property
    def server_version(self) -> str:
        """The version of the server, for people."""
        return "unknown" if self._line is None else self._line.server_version

    async def open(self) -> None:
        """Connect within the startup deadline, or raise `UnavailableError`; a refused user is told at
        once."""
        self._refused.clear()
        line = self._new_line()
        dialling = asyncio.create_task(line.dial())
        refused = asyncio.create_task(self._refused.wait())
        deadline = self._settings.nats_startup_seconds
        connected = False
        try:
            await asyncio.wait({dialling, refused}, timeout=deadline, return_when=asyncio.FIRST_COMPLETED)
            connected = dialling.done() and dialling.exception() is None
        finally:  # also where it has connected in the moment in which nobody wants it any more
            refused.cancel()
            if not connected:
                dialling.cancel()
                await asyncio.wait({dialling})
                await line.hang_up()
        if not connected:
            raise self._no_start(dialling)
        self._line = line
        self._watchdog.start(line)
        self._up.set()
        self._fact("broker_connected", {"server": line.server})

    async def close(self) -> None:
        """Close it after the server has read what was written; never raises."""
        if self._closing:
            return
        if self.is_connected and self._line is not None:
            await self._line.answers(within_seconds=_FAREWELL_SECONDS)
        self._closing = True
        self._up.set()
        if self._line is None:
            return
        self._run(self.on_disconnected)
        await self._watchdog.stop()
        for subscription in list(self._subscriptions):
            await subscription.drop()
        await self._line.hang_up()

    async def wait_connected(self) -> None:
        """Return as soon as there is a connection; `UnavailableError` once this one is closed."""
        while not self.is_connected:
            if self._closing:
                raise UnavailableError("the connection to the broker is closed")
            self._up.clear()
            await self._up.wait()

    async def wait_drained(self) -> None:
        """Return as soon as the socket has taken most of what was written."""
        # nats-py has no event for it
        while self._line is not None and self._line.backlog > _MOST_BACKLOG and self._line.is_connected:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_SECONDS)

    def publish(
        self, subject: str, body: bytes = b"", *, reply: str = "", headers: HeaderLines | None = None
    ) -> None:
        """Hand one message to the socket, or to the buffer while the server is away."""
        line = self._require()
        command = encode(subject, body, reply=reply, headers=headers)
        limit = line.client.max_payload
        # What is larger the server would answer by closing the connection.
        if len(command) > limit and (bytes_sent := size(command)) > limit:
            raise BrokerRefusedError(
                "too_large",
                f"a message of {bytes_sent} bytes is more than the broker's {limit}",
            )
        if not line.is_connected:
            if line.is_gone:
                raise UnavailableError("the broker is away: the connection is being made anew")
            if line.backlog + len(command) > PENDING_BYTES:
                raise UnavailableError("the broker is away, and what waits for it already fills the buffer")
        line.write(command)

    async def subscribe(
        self, subject: str, handler: OnMessage, on_plain: OnPlain | None = None, *, group: str = ""
    ) -> NatsSubscription:
        """Listen to a subject for good, also after the client was built anew."""
        line = self._require()
        subscription = NatsSubscription(subject, handler, on_plain, group=group)
        self._subscriptions.add(subscription)
        if line.is_dialled:  # else it is bound together with all others, as soon as the line is
            try:
                await subscription.bind(line)
            except BaseException:
                self._subscriptions.discard(subscription)
                subscription.abandon()
                raise
        return subscription

    async def unsubscribe(self, subscription: NatsSubscription) -> None:
        """Stop listening; the handler still gets what the server had sent."""
        self._subscriptions.discard(subscription)
        await subscription.drain()

    def _require(self) -> NatsClient:
        """Return the line, connected or not."""
        if self._line is None or self._closing:
            raise UnavailableError("the connection to the broker is not open")
        return self._line

    def _new_line(self) -> NatsClient:
        self._newest = line = NatsClient(options(self._settings, name=self._name), self._callbacks)
        return line

    def _callbacks(self, line: NatsClient) -> dict[str, Callable[..., Awaitable[None]]]:
        """Return what nats-py calls for this line. From one that was replaced nothing is heard any more."""

        async def error(error: Exception) -> None:
            if line is self._newest:
                self._on_error(error)

        async def disconnected() -> None:
            line.forget_pings()
            if line is self._line and not self._closing:
                self._fact("broker_disconnected", {})
                self._run(self.on_disconnected)

        async def reconnected() -> None:
            if line is self._line:
                self._on_reconnected(line)

        async def closed() -> None:
            if line is self._line:
                self._watchdog.look()

        return {
            "error_cb": error,
            "disconnected_cb": disconnected,
            "reconnected_cb": reconnected,
            "closed_cb": closed,
        }

    def _no_start(self, dialling: asyncio.Task[None]) -> GrnsError:
        """Say why there is no connection, and what to do."""
        servers = self._settings.nats_hosts()
        if self._refused.is_set():
            return UnavailableError(
                f"the broker at {servers} refused the user: check GRNS_NATS_URL or GRNS_NATS_CREDENTIALS_FILE"
            )
        if not dialling.cancelled() and (failure := dialling.exception()) is not None:
            return SettingsError(f"cannot connect to {servers}: {failure}")
        return UnavailableError(
            f"no broker answered at {servers} within {self._settings.nats_startup_seconds:g} s"
            f" ({self._last_error or 'no answer'}): start one with `grns dev`, or set GRNS_NATS_URL"
        )

    async def _rebuild(self, pause_seconds: float) -> NatsClient:
        """Connect with a new client, however long it takes, and listen again to everything."""
        if self._line is not None:
            self._run(self.on_disconnected)
            await self._line.hang_up()
        await asyncio.sleep(pause_seconds)
        self._line = line = self._new_line()
        await line.dial()
        for subscription in list(self._subscriptions):
            try:
                await subscription.bind(line)
            except BrokerRefusedError as error:  # must not keep all others from being heard
                self._subscriptions.discard(subscription)
                self._fact("broker_error", {"error": str(error)})
        self._on_reconnected(line)
        return line

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

    def _on_reconnected(self, line: NatsClient) -> None:
        self._fact("broker_reconnected", {"server": line.server})
        self._up.set()
        self._run(self.on_connected)
