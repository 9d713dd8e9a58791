"""What grns needs of a broker. Two implementations have to fit: JetStream now, RabbitMQ later.

A transport moves bytes and knows nothing of tasks. The suite in `tests/nats/transport/`
is the other half of this contract.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from grns.errors import GrnsError

HeaderLines: TypeAlias = str
"""Headers that are written out, `name: value` and CRLF each: whoever sends much saves the mapping.

Whoever writes them out puts each value that comes from elsewhere through `one_line`.
"""

_MOST_DIGITS = 18  # more may not fit into 64 bits
_NO_BREAKS = str.maketrans("\r\n", "  ")


def one_line(value: str) -> str:
    """Return a header's value as one that cannot end its line."""
    return value.translate(_NO_BREAKS) if "\n" in value or "\r" in value else value


def whole_number(value: str) -> int | None:
    """Return what a header counts; None where it is no number of ours: anybody may have written it."""
    return int(value) if value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS else None


@dataclass(slots=True)  # made for each message: frozen ones take five times as long to make
class Message:
    """One message to be published. `id` is the same whenever the same message is sent again."""

    subject: str
    body: bytes
    id: str
    headers: Mapping[str, str] | HeaderLines


@dataclass(slots=True)
class Receipt:
    """The broker stored the message, or already had it (`duplicate`)."""

    stream: str
    seq: int
    duplicate: bool


Done = Callable[[Receipt | GrnsError], None]


class Delivery(Protocol):
    """One received copy of a message. Exactly one of ack, nak and term ends it."""

    @property
    def subject(self) -> str:
        """The subject the message was published on."""

    @property
    def body(self) -> bytes:
        """The bytes, as they were sent."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, empty where there are none."""

    @property
    def stream(self) -> str:
        """The stream that delivered it."""

    @property
    def stream_seq(self) -> int:
        """Its place in the stream: a hint for people, never a key."""

    @property
    def delivery_count(self) -> int:
        """How often the broker says that it has delivered the message, this time included."""

    @property
    def token(self) -> str:
        """What `Transport.in_progress` needs to keep this delivery alive, also from another process."""

    async def ack(self) -> None:
        """End the delivery: its effect is durable."""

    async def nak(self, delay_seconds: float = 0.0) -> None:
        """Give it back; it is delivered again after the delay."""

    async def in_progress(self) -> None:
        """Restart the broker's timer for this delivery."""

    async def term(self, reason: str) -> None:
        """End it for good without an effect: the message cannot be accepted."""


class Request(Protocol):
    """One message whose sender waits for the answer. It is in no stream: it comes once, or never."""

    @property
    def subject(self) -> str:
        """The subject the message was published on."""

    @property
    def body(self) -> bytes:
        """The bytes, as they were sent."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, empty where there are none."""

    @property
    def is_awaited(self) -> bool:
        """True where there is an inbox to answer to. Any other address may be one that its sender
        could not write to: it is not answered."""

    def answer(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send the answer, once, and do not wait: whether anybody still listens is not known.

        Raises `BrokerRefusedError` for one that is too large, after which a smaller one may be sent.
        """


class Serving(Protocol):
    """A running subscription to requests."""

    async def stop(self) -> None:
        """Take in no more; those that the broker had sent by then still come."""


class Consumer(Protocol):
    """A running subscription to one durable."""

    @property
    def is_failing(self) -> bool:
        """True while nothing can be fetched (broker away, stream or durable missing)."""

    def set_depth(self, depth: int) -> None:
        """Say how many unfinished deliveries may be held at once; 0 pauses fetching."""

    def done(self) -> None:
        """Say that one delivery has ended, so that another may be fetched."""

    async def stop(self) -> None:
        """Stop fetching. Deliveries that are held can still be ended."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """What a stream says of itself. `epoch` is written when the stream is made: another one means that
    everything the stream held is gone. `first_at` is when its oldest message was stored."""

    epoch: str
    last_seq: int
    messages: int
    first_at: datetime | None


@dataclass(frozen=True, slots=True)
class Lag:
    """How far one durable is behind: what its stream has yet to deliver to it, and what was delivered and
    not acknowledged, of that more than once. `consumer` is the subject that it serves, or its own name where
    these are several."""

    stream: str
    consumer: str
    pending: int
    unacknowledged: int
    redelivered: int


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as a stream holds it; `stored_at` is by the broker's clock."""

    stream: str
    seq: int
    subject: str
    body: bytes
    headers: Mapping[str, str]
    stored_at: datetime


@dataclass(frozen=True, slots=True)
class DurableState:
    """What a durable says of itself: what waits for it, what it has delivered that is not ended, how many
    fetches wait at it, and for how long it will yet be paused (0 where it is not)."""

    pending: int
    ack_pending: int
    fetching: int
    paused_seconds: float


class Transport(Protocol):
    """A connection to the broker.

    Nothing here loses a message silently: what is not confirmed is an error. Errors are
    `UnavailableError` (try again), `BrokerRefusedError` (never, as it is) and `DriftError`.
    """

    @property
    def is_connected(self) -> bool:
        """True while the broker answers."""

    @property
    def max_message_bytes(self) -> int:
        """The largest body that the broker says it takes."""

    async def connect(self, *, is_patient: bool = False) -> None:
        """Connect, within the startup deadline, or raise `UnavailableError`. Reconnects by itself from then
        on.

        A patient one returns at once and goes on trying, however long the broker is away.
        """

    async def wait_connected(self) -> None:
        """Return once there has been a connection."""

    async def close(self) -> None:
        """Close the connection; what was not confirmed is reported as `UnavailableError`."""

    async def provision(self) -> bool:
        """Make the streams (or check them, if so set); True where one had to be made: its content is gone."""

    async def remove(self) -> None:
        """Remove what `provision` has made, with all that it holds; `InvalidInputError` without a
        namespace."""

    async def ready(self) -> int:
        """Return once there is a connection and the window has room; `UnavailableError` after the end.

        Says how many messages may be posted, one at least, before it is to be awaited again,
        if that is done without another await in between.
        """

    def post(self, message: Message, done: Done) -> None:
        """Send one message; `done` is called exactly once with the answer, and must not block.

        It does not wait: whoever sends much awaits `ready` before.
        """

    async def publish(self, message: Message) -> Receipt:
        """Send one message and wait for the answer, or raise it."""

    async def consume(
        self, filter_subject: str, on_delivery: Callable[[Delivery], None], *, depth: int
    ) -> Consumer:
        """Fetch what arrives on a subject from its durable, which is made where it is missing.

        `on_delivery` must not block. The consumer mends itself after a lost connection,
        a deleted durable or stream, or a broker that came back empty.
        """

    async def pause(self, filter_subject: str, *, seconds: float) -> bool:
        """Deliver nothing of a subject's durable for so long, whoever fetches; 0 lets it go on.

        False where that cannot be: there is none yet, or durables are not ours to change. It only saves
        deliveries: what was asked for before may still arrive.
        """

    async def durable(self, filter_subject: str) -> DurableState | None:
        """Return what a subject's durable says of itself; None where there is none."""

    async def in_progress(self, tokens: Sequence[str]) -> None:
        """Restart the broker's timer for deliveries, which may be another connection's."""

    async def nudge(self, subject: str) -> None:
        """Send a hint that may get lost. Never raises, never waits for an answer."""

    async def on_nudge(self, subject: str, callback: Callable[[], None]) -> None:
        """Call back for each hint on `subject`."""

    async def subscribe(
        self,
        name: str,
        filter_subjects: Sequence[str],
        on_delivery: Callable[[Delivery], None],
        *,
        depth: int,
    ) -> Consumer:
        """Fetch events from the durable `name` (a subscriber's own), from the first stored one on."""

    async def observe(self, subject: str, callback: Callable[[str, bytes, Mapping[str, str]], None]) -> None:
        """Watch what is published from now on, without storing a position; what is missed is missed."""

    async def serve(self, pattern: str, group: str, on_request: Callable[[Request], None]) -> Serving:
        """Take in requests, each of which goes to one member of the group; `on_request` must not block.

        It goes on after a lost connection. What is sent while no member is there, nobody gets.
        """

    async def state(self, stream: str) -> StreamState:
        """Return what the stream says of itself; `NotFoundError` where it does not exist."""

    async def lags(self) -> Sequence[Lag]:
        """Return how far each durable is behind, of all streams that are there."""

    async def last_message(self, stream: str) -> StoredMessage | None:
        """Return the newest message of the stream, None where it is empty."""

    def stored(self, stream: str, *, since: datetime, until: datetime) -> AsyncIterator[StoredMessage]:
        """Read what the stream stored between two moments, by its own clock, oldest first."""

    async def unserved(self, stream: str, *, older_than_seconds: float) -> Sequence[StoredMessage]:
        """Return old messages (some, oldest first) of a work queue on subjects that no durable serves."""

    async def discard(self, stream: str, seq: int) -> None:
        """Remove one message from a stream."""
