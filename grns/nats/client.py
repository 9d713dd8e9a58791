"""The client of NATS JetStream that all of grns uses."""

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
from grns.nats.api import Api, ApiError, Replies
from grns.nats.connection import Connection, OnFact, harmless, ignore
from grns.nats.consumer import Consumer
from grns.nats.delivery import IN_PROGRESS, Delivery, Request, Serving, serve
from grns.nats.messages import Done, DurableState, Lag, Message, Receipt, StoredMessage, StreamState
from grns.nats.outputs import Outputs, expected_outputs
from grns.nats.provision import Config, Provisioner, expected_durable, expected_subscriber
from grns.nats.publisher import Publisher
from grns.nats.report import Reporter, StreamReport
from grns.nats.streams import Streams
from grns.settings import Settings

ANSWER_SECONDS = 5.0
# Room that `max_message_bytes` leaves for headers.
HEADER_BYTES = 4096
_TOKENS_AT_ONCE = 1000


class JetStream:
    """A connection to NATS JetStream.

    It never loses a message silently: a message that is not confirmed is an error. Errors are
    `UnavailableError` (try again), `BrokerRefusedError` (never, unless changed) and `DriftError`.

    Args:
        settings: Servers, credentials, limits and the namespace of streams and subjects.
        name: The name of this connection in the server's lists.
        on_fact: Called with a name and fields for each loss, repair and change.
    """

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
        self._outputs = Outputs(self._connection)
        self._reporter = Reporter(self._api, settings)
        self._publisher = Publisher(
            self._connection, self._replies, window=settings.relay_window, stuck_after_seconds=ANSWER_SECONDS
        )
        self._opened = asyncio.Event()
        self._connecting: asyncio.Task[None] | None = None
        self._listening: list[tuple[str, Callable[[Msg], None], str]] = []
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()

    @property
    def is_connected(self) -> bool:
        """True while the broker answers."""
        return self._connection.is_connected

    @property
    def max_message_bytes(self) -> int:
        """The largest body that the broker accepts, with room for headers."""
        return max(0, self._connection.max_payload - HEADER_BYTES)

    async def connect(self, *, is_patient: bool = False) -> None:
        """Connect within the startup deadline. From then on it reconnects automatically.

        Args:
            is_patient: Return at once, and keep trying until the broker is there.

        Raises:
            UnavailableError: the broker did not answer within the deadline.
        """
        if is_patient:
            self._connecting = asyncio.create_task(self._connect_patiently())
        else:
            await self._open()

    async def wait_connected(self) -> None:
        """Wait for the first connection."""
        await self._opened.wait()

    async def _open(self) -> None:
        await self._connection.open()
        await self._replies.open()
        self._opened.set()
        for subject, receive, group in self._listening:
            await self._listen(subject, receive, group)

    async def _connect_patiently(self) -> None:
        while not self._opened.is_set():
            try:
                await self._open()
            except GrnsError as error:
                self._fact("broker_unreachable", {"error": str(error)})
                await asyncio.sleep(1.0)

    async def close(self) -> None:
        """Stop all consumers, flush, and close. Unconfirmed messages end with `UnavailableError`."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        await asyncio.gather(*(consumer.stop() for consumer in list(self._consumers)))
        await self._connection.close()
        await self._replies.close()

    async def provision(self) -> bool:
        """Create, update or only check the streams. Return True if one was created: its messages are gone."""
        made = await self._provisioner.streams()
        await self.provision_outputs()
        return made

    async def provision_outputs(self) -> None:
        """Create the stream of output if this user may. Without it, only who watches already sees it."""
        await self._provisioner.outputs(expected_outputs(self._settings))

    async def remove(self) -> None:
        """Delete the streams of a namespace and all their messages.

        Raises:
            InvalidInputError: the connection has no namespace.
        """
        if not self._prefix:
            raise InvalidInputError(
                "no_namespace", "streams without a namespace are never removed: set GRNS_NATS_NAMESPACE"
            )
        await self._provisioner.remove(expected_outputs(self._settings))

    async def differences(self) -> list[str]:
        """Return how the streams differ from what grns expects."""
        return await self._provisioner.differences()

    async def report(self) -> list[StreamReport]:
        """Describe the streams and durables, and how they differ from what grns expects."""
        return await self._reporter.report()

    @property
    def server_version(self) -> str:
        """The version of the server, for people."""
        return self._connection.server_version

    async def clock(self) -> datetime:
        """Return the time by the broker's clock.

        Raises:
            NotFoundError: the command stream does not exist.
        """
        return await self._streams.clock(subjects.CMD_STREAM)

    async def ready(self) -> int:
        """Wait for a connection and for room in the window; return how many messages may be posted.

        The number, at least one, holds until the next await.

        Raises:
            UnavailableError: this connection is closed.
        """
        return await self._publisher.ready()

    def post(self, message: Message, done: Done) -> None:
        """Send one message without waiting; await `ready` before if you send many.

        `done` is called exactly once with the answer, and must not block.
        """
        self._publisher.post(message, done)

    async def publish(self, message: Message) -> Receipt:
        """Send one message and return the answer, or raise it."""
        return await self._publisher.publish(message)

    async def consume(
        self,
        filter_subject: str,
        on_delivery: Callable[[Delivery], None],
        *,
        depth: int,
        is_split: bool = False,
    ) -> Consumer:
        """Fetch the messages of a subject from its durable, which is created if it is missing.

        With `is_split`, each envelope of a message is a delivery of its own, and `depth` counts these.
        `on_delivery` must not block. The consumer recovers from a lost connection, a deleted durable or
        stream, and a broker that lost its data.
        """
        durable = expected_durable(self._prefix + filter_subject, self._settings)
        stream = _stream_of(filter_subject)
        return await self._start_consumer(stream, durable, on_delivery, depth, is_split=is_split)

    async def subscribe(
        self,
        name: str,
        filter_subjects: Sequence[str],
        on_delivery: Callable[[Delivery], None],
        *,
        depth: int,
    ) -> Consumer:
        """Fetch events from the durable `name`, a subscriber's own, from the oldest stored event on.

        Each event is a delivery, also where several share a message.
        """
        for subject in filter_subjects:
            if _stream_of(subject) != subjects.EVT_STREAM:
                raise InvalidInputError(
                    "bad_subject", f"{ascii(subject)[:100]} is not a subject of events (evt.…)"
                )
        subjects.token(name, name="name")
        served = [self._prefix + subject for subject in filter_subjects]
        durable = expected_subscriber(name, served, self._settings)
        return await self._start_consumer(subjects.EVT_STREAM, durable, on_delivery, depth, is_split=True)

    async def pause(self, filter_subject: str, *, seconds: float) -> bool:
        """Pause the durable of a subject for all its consumers; 0 resumes it.

        It only saves deliveries: messages requested before may still arrive. Return False if there is no
        durable, or if grns may not change durables.
        """
        if self._settings.nats_manage == "verify":
            return False
        return await self._provisioner.pause(*self._durable_of(filter_subject), seconds)

    async def durable(self, filter_subject: str) -> DurableState | None:
        """Return the state of a subject's durable; None if there is none."""
        return await self._reporter.durable(*self._durable_of(filter_subject))

    def _note_error(self, subject: str, error: GrnsError) -> None:
        """Report that JetStream stores nothing, at most once a second."""
        is_api_silent = subject.startswith("$JS.API.") and not isinstance(error, ApiError)
        is_out_of_room = isinstance(error, ApiError) and error.is_out_of_room
        now = time.monotonic()
        if (is_api_silent or is_out_of_room) and now - self._out_of_room_at >= 1.0:
            self._out_of_room_at = now
            self._fact("jetstream_out_of_room", {"error": str(error)})

    def _durable_of(self, filter_subject: str) -> tuple[str, str]:
        """Return the stream and the name of a subject's durable at the broker, namespace included."""
        stream = self._prefix + _stream_of(filter_subject)
        return stream, subjects.durable(self._prefix + filter_subject)

    async def in_progress(self, tokens: Sequence[str]) -> None:
        """Restart the broker's timer for deliveries, which may be another connection's.

        Does nothing while the broker is away.
        """
        for count, token in enumerate(tokens, start=1):
            if not self.is_connected:
                return
            self._connection.publish(token, IN_PROGRESS)
            if count % _TOKENS_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def nudge(self, subject: str, body: bytes = b"") -> None:
        """Send a hint that may get lost. Never raises and never waits for an answer."""
        self.send(subject, body)

    def send(self, subject: str, body: bytes) -> bool:
        """Send what may get lost, and wait for nothing; return whether the broker was there to take it."""
        if not self.is_connected or self._connection.is_congested:
            return False
        try:
            self._connection.publish(self._prefix + subject, body)
        except GrnsError:
            return False
        return True

    async def on_nudge(self, subject: str, callback: Callable[[], None]) -> None:
        """Call `callback` for each hint on `subject`, from the first connection on."""
        await self._listen(subject, lambda _message: callback(), "")

    async def on_task(self, subject: str, callback: Callable[[bytes], None], *, group: str) -> None:
        """Call `callback` with the body of each hint on `subject`, in one member of a group ('': in all)."""
        await self._listen(subject, lambda message: callback(message.data), group)

    async def _listen(self, subject: str, receive: Callable[[Msg], None], group: str) -> None:
        if not self._opened.is_set():
            self._listening.append((subject, receive, group))
            return
        await self._connection.subscribe(self._prefix + subject, receive, group=group)

    async def observe(self, subject: str, callback: Callable[[str, bytes, Mapping[str, str]], None]) -> None:
        """Receive messages published from now on, without a stored position: missed ones stay missed."""

        def watch(message: Msg) -> None:
            callback(message.subject.removeprefix(self._prefix), message.data, message.headers or {})

        await self._connection.subscribe(self._prefix + subject, watch)

    @contextlib.asynccontextmanager
    async def watching(self, subject: str, callback: Callable[[bytes], None]) -> AsyncIterator[None]:
        """Call `callback` with the body of each message that is published on `subject` in the block."""
        watch = await self._connection.subscribe(
            self._prefix + subject, lambda message: callback(message.data)
        )
        try:
            yield
        finally:
            await self._connection.unsubscribe(watch)

    async def stored_output(self, subject: str) -> list[bytes]:
        """Return the output on a subject that the broker still has. NotFoundError without its stream."""
        if not self.is_connected:
            raise UnavailableError("the broker is away")
        return await self._outputs.stored(subject)

    async def serve(self, pattern: str, group: str, on_request: Callable[[Request], None]) -> Serving:
        """Receive requests; each goes to one member of the group. `on_request` must not block.

        Survives a lost connection. Requests sent while no member is connected are lost.
        """
        return await serve(self._connection, pattern, group, on_request)

    async def state(self, stream: str) -> StreamState:
        """Return the state of a stream.

        Raises:
            NotFoundError: the stream does not exist.
        """
        return await self._streams.state(stream)

    async def lags(self) -> Sequence[Lag]:
        """Return the backlog of each durable in the existing streams."""
        return await self._reporter.lags()

    async def last_message(self, stream: str) -> StoredMessage | None:
        """Return the newest message of a stream; None if it is empty."""
        return await self._streams.last_message(stream)

    async def message_at(self, stream: str, seq: int) -> StoredMessage | None:
        """Return the message of a stream with this number; None if it does not have it any more."""
        return await self._streams.message_at(stream, seq)

    def stored(self, stream: str, *, since: datetime, until: datetime) -> AsyncIterator[StoredMessage]:
        """Read the messages stored between two times by the stream's clock, oldest first."""
        return self._streams.stored(stream, since=since, until=until)

    async def unserved(self, stream: str, *, older_than_seconds: float) -> Sequence[StoredMessage]:
        """Return old messages (a sample, oldest first) of a work queue on subjects without a durable."""
        return await self._streams.unserved(stream, older_than_seconds=older_than_seconds)

    async def discard(self, stream: str, seq: int) -> None:
        """Remove one message from a stream."""
        await self._streams.discard(stream, seq)

    async def _start_consumer(
        self,
        stream: str,
        durable: Config,
        on_delivery: Callable[[Delivery], None],
        depth: int,
        *,
        is_split: bool = False,
    ) -> Consumer:
        full_name = self._prefix + stream

        async def ensure() -> None:
            await self._provisioner.durable(full_name, durable)

        consumer = Consumer(
            self._connection,
            f"{full_name}.{durable['name']}",
            ensure=ensure,
            on_delivery=on_delivery,
            depth=depth,
            heartbeat_seconds=min(2.0, max(0.25, self._settings.lease_seconds / 7.5)),
            on_fact=self._fact,
            is_split=is_split,
        )
        doubt: str | None = None
        try:
            await ensure()
        except UnavailableError as error:  # start all the same: the broker may only be away now
            doubt = str(error)
        await consumer.start(doubt=doubt)
        self._consumers.add(consumer)
        return consumer


def _stream_of(subject: str) -> str:
    stream = subjects.STREAM_OF.get(subject.partition(".")[0])
    if stream is None:
        raise InvalidInputError(
            "bad_subject", f"{ascii(subject)[:100]} is not in a stream of grns (cmd.…, evt.…, dlq.…)"
        )
    return stream
