"""JetStream as a `Transport`: every method is somebody else's work."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime

from nats.aio.msg import Msg

from grns.errors import GrnsError, InvalidInputError, UnavailableError
from grns.model import subjects
from grns.nats.api import Api, ApiError
from grns.nats.config import Config, expected_durable, expected_subscriber
from grns.nats.connection import Connection
from grns.nats.delivery import IN_PROGRESS
from grns.nats.interface import (
    Consumer,
    Delivery,
    Done,
    DurableState,
    Lag,
    Message,
    Receipt,
    Request,
    Serving,
    StoredMessage,
    StreamState,
)
from grns.nats.pause import Pauser
from grns.nats.provision import Provisioner
from grns.nats.publisher import Publisher
from grns.nats.puller import Puller
from grns.nats.reply import Replies
from grns.nats.report import Reporter, StreamReport
from grns.nats.request import serve
from grns.nats.signals import OnFact, harmless, ignore
from grns.nats.stream import Streams
from grns.settings import Settings

ANSWER_SECONDS = 5.0
# Room that `max_message_bytes` leaves for what surrounds a body.
HEADER_BYTES = 4096
_TOKENS_AT_ONCE = 1000


class JetStream:
    """A connection to NATS JetStream. `on_fact(name, fields)` hears of losses, repairs and changes."""

    def __init__(self, settings: Settings, *, name: str, on_fact: OnFact = ignore) -> None:
        self._settings = settings
        self._prefix = settings.nats_prefix
        self._fact = harmless(on_fact)
        self._connection = Connection(settings, name=name, on_fact=self._fact)
        self._out_of_room_at = float("-inf")
        self._replies = Replies(
            self._connection,
            timeout_seconds=ANSWER_SECONDS,
            on_fact=self._fact,
            on_error=self._note_error,
        )
        self._api = Api(self._connection, self._replies)
        self._provisioner = Provisioner(self._api, settings, on_fact=self._fact)
        self._streams = Streams(self._api, self._prefix)
        self._reporter = Reporter(self._api, settings)
        self._pauser = Pauser(self._api)
        self._publisher = Publisher(
            self._connection, self._replies, window=settings.relay_window, stuck_after_seconds=ANSWER_SECONDS
        )
        self._opened = asyncio.Event()
        self._connecting: asyncio.Task[None] | None = None
        self._nudges: list[tuple[str, Callable[[], None]]] = []
        self._pullers: weakref.WeakSet[Puller] = weakref.WeakSet()

    @property
    def is_connected(self) -> bool:
        """True while the broker answers."""
        return self._connection.is_connected

    @property
    def max_message_bytes(self) -> int:
        """The largest body that the broker takes, with room for headers."""
        return max(0, self._connection.max_payload - HEADER_BYTES)

    async def connect(self, *, is_patient: bool = False) -> None:
        """Connect, within the startup deadline, or raise `UnavailableError`; a patient one goes on trying."""
        if is_patient:
            self._connecting = asyncio.create_task(self._connect_patiently())
        else:
            await self._open()

    async def wait_connected(self) -> None:
        """Return once there has been a connection."""
        await self._opened.wait()

    async def _open(self) -> None:
        await self._connection.open()
        await self._replies.open()
        self._opened.set()
        for subject, callback in self._nudges:
            await self.on_nudge(subject, callback)

    async def _connect_patiently(self) -> None:
        while not self._opened.is_set():
            try:
                await self._open()
            except GrnsError as error:
                self._fact("broker_unreachable", {"error": str(error)})
                await asyncio.sleep(1.0)

    async def close(self) -> None:
        """Stop all consumers, let the broker read what was written, and close."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        await asyncio.gather(*(puller.stop() for puller in list(self._pullers)))
        await self._connection.close()
        await self._replies.close()

    async def provision(self) -> bool:
        """Make, mend or check the streams; True where one had to be made."""
        return await self._provisioner.streams()

    async def remove(self) -> None:
        """Remove the streams of a namespace, with all that they hold."""
        if not self._prefix:
            raise InvalidInputError(
                "no_namespace", "only streams that have a namespace of their own are removed"
            )
        await self._provisioner.remove()

    async def differences(self) -> list[str]:
        """Return how the streams differ from what grns would make."""
        return await self._provisioner.differences()

    async def report(self) -> list[StreamReport]:
        """Return what there is of streams and durables, and how they differ from what grns would make."""
        return await self._reporter.report()

    @property
    def server_version(self) -> str:
        """The version of the broker, for people."""
        return self._connection.server_version

    async def clock(self) -> datetime:
        """Return the time by the broker's clock; `NotFoundError` without the stream of commands."""
        return await self._streams.clock(subjects.CMD_STREAM)

    async def ready(self) -> int:
        """Return, once there is a connection and the window has room, for how many messages it has."""
        return await self._publisher.ready()

    def post(self, message: Message, done: Done) -> None:
        """Send one message; `done` is called exactly once with the answer."""
        self._publisher.post(message, done)

    async def publish(self, message: Message) -> Receipt:
        """Send one message and wait for the answer, or raise it."""
        return await self._publisher.publish(message)

    async def consume(
        self, filter_subject: str, on_delivery: Callable[[Delivery], None], *, depth: int
    ) -> Consumer:
        """Fetch what arrives on a subject from its durable."""
        durable = expected_durable(self._prefix + filter_subject, self._settings)
        return await self._pull(_stream_of(filter_subject), durable, on_delivery, depth)

    async def subscribe(
        self,
        name: str,
        filter_subjects: Sequence[str],
        on_delivery: Callable[[Delivery], None],
        *,
        depth: int,
    ) -> Consumer:
        """Fetch events from a subscriber's own durable."""
        for subject in filter_subjects:
            if _stream_of(subject) != subjects.EVT_STREAM:
                raise InvalidInputError(
                    "bad_subject", f"{ascii(subject)[:100]} is no subject of events (evt.…)"
                )
        subjects.token(name, name="name")
        served = [self._prefix + subject for subject in filter_subjects]
        durable = expected_subscriber(name, served, self._settings)
        return await self._pull(subjects.EVT_STREAM, durable, on_delivery, depth)

    async def pause(self, filter_subject: str, *, seconds: float) -> bool:
        """Pause the durable of a subject for so long; 0 lets it go on."""
        if self._settings.nats_manage == "verify":
            return False
        return await self._pauser.pause(*self._durable_of(filter_subject), seconds)

    async def durable(self, filter_subject: str) -> DurableState | None:
        """Return what a subject's durable says of itself; None where there is none."""
        return await self._reporter.durable(*self._durable_of(filter_subject))

    def _note_error(self, subject: str, error: GrnsError) -> None:
        """Tell of a JetStream that stores nothing: no more than once a second."""
        is_api_silent = subject.startswith("$JS.API.") and not isinstance(error, ApiError)
        is_out_of_room = isinstance(error, ApiError) and error.is_out_of_room
        now = time.monotonic()
        if (is_api_silent or is_out_of_room) and now - self._out_of_room_at >= 1.0:
            self._out_of_room_at = now
            self._fact("jetstream_out_of_room", {"error": str(error)})

    def _durable_of(self, filter_subject: str) -> tuple[str, str]:
        """Return the stream and the name of a subject's durable, as the broker knows them."""
        stream = self._prefix + _stream_of(filter_subject)
        return stream, subjects.durable(self._prefix + filter_subject)

    async def in_progress(self, tokens: Sequence[str]) -> None:
        """Restart the broker's timer for deliveries; nothing to do while the broker is away."""
        for place, token in enumerate(tokens):
            if not self.is_connected:
                return
            self._connection.publish(token, IN_PROGRESS)
            if place % _TOKENS_AT_ONCE == _TOKENS_AT_ONCE - 1:
                await asyncio.sleep(0)

    async def nudge(self, subject: str) -> None:
        """Send a hint that may get lost."""
        if self.is_connected:
            with contextlib.suppress(GrnsError):
                self._connection.publish(self._prefix + subject)

    async def on_nudge(self, subject: str, callback: Callable[[], None]) -> None:
        """Call back for each hint on `subject`, as soon as there is a connection."""
        if not self._opened.is_set():
            self._nudges.append((subject, callback))
            return
        await self._connection.subscribe(self._prefix + subject, lambda _message: callback())

    async def observe(self, subject: str, callback: Callable[[str, bytes, Mapping[str, str]], None]) -> None:
        """Watch what is published from now on."""

        def watch(message: Msg) -> None:
            callback(message.subject.removeprefix(self._prefix), message.data, message.headers or {})

        await self._connection.subscribe(self._prefix + subject, watch)

    async def serve(self, pattern: str, group: str, on_request: Callable[[Request], None]) -> Serving:
        """Take in requests, each of which goes to one member of the group."""
        return await serve(self._connection, pattern, group, on_request)

    async def state(self, stream: str) -> StreamState:
        """Return what the stream says of itself; `NotFoundError` where it does not exist."""
        return await self._streams.state(stream)

    async def lags(self) -> Sequence[Lag]:
        """Return how far each durable is behind, of all streams that are there."""
        return await self._reporter.lags()

    async def last_message(self, stream: str) -> StoredMessage | None:
        """Return the newest message of the stream, None where it is empty."""
        return await self._streams.last_message(stream)

    def stored(self, stream: str, *, since: datetime, until: datetime) -> AsyncIterator[StoredMessage]:
        """Read what the stream stored between two moments, oldest first."""
        return self._streams.stored(stream, since=since, until=until)

    async def unserved(self, stream: str, *, older_than_seconds: float) -> Sequence[StoredMessage]:
        """Return old messages of a work queue on subjects that no durable serves."""
        return await self._streams.unserved(stream, older_than_seconds=older_than_seconds)

    async def discard(self, stream: str, seq: int) -> None:
        """Remove one message from a stream."""
        await self._streams.discard(stream, seq)

    async def _pull(
        self, stream: str, durable: Config, on_delivery: Callable[[Delivery], None], depth: int
    ) -> Consumer:
        place = self._prefix + stream

        async def ensure() -> None:
            await self._provisioner.durable(place, durable)

        puller = Puller(
            self._connection,
            f"{place}.{durable['name']}",
            ensure=ensure,
            on_delivery=on_delivery,
            depth=depth,
            heartbeat_seconds=min(2.0, max(0.25, self._settings.lease_seconds / 7.5)),
            on_fact=self._fact,
        )
        doubt: str | None = None
        try:
            await ensure()
        except UnavailableError as error:  # a broker that is away now is no reason not to start
            doubt = str(error)
        await puller.start(doubt=doubt)
        self._pullers.add(puller)
        return puller


def _stream_of(subject: str) -> str:
    stream = subjects.STREAM_OF.get(subject.partition(".")[0])
    if stream is None:
        raise InvalidInputError(
            "bad_subject", f"{ascii(subject)[:100]} is in no stream of grns (cmd.…, evt.…, dlq.…)"
        )
    return stream
