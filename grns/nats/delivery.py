"""Messages received: deliveries from a stream, and requests that wait for an answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import orjson
from nats.aio.msg import Msg

from grns.model.envelope import traceparent
from grns.model.subjects import MOST_ENVELOPES
from grns.nats.connection import Connection
from grns.nats.messages import StoredMessage, lines
from grns.nats.provision import NANOSECONDS
from grns.nats.subscription import NatsSubscription
from grns.telemetry import failpoint

ACK_PREFIX = "$JS.ACK."
IN_PROGRESS = b"+WPI"

# From the right: stream, consumer, delivered, stream seq, consumer seq, time, pending.
_V1_TOKENS, _V2_TOKENS, _FIELDS = 9, 11, 7
_REASON_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Origin:
    """Fields of a delivery's reply subject."""

    stream: str
    consumer: str
    delivery_count: int
    stream_seq: int


UNKNOWN = Origin("", "", 1, 0)


def parse_reply(reply: str) -> Origin:
    """Parse `$JS.ACK.…`, in both forms that servers use.

    v1 is `$JS.ACK.<fields>`, v2 `$JS.ACK.<domain>.<account>.<fields>`, where later
    servers may append tokens. The fields are hints only: an unknown form gives `UNKNOWN`.
    """
    tokens = reply.split(".")
    if not reply.startswith(ACK_PREFIX) or not (len(tokens) == _V1_TOKENS or len(tokens) >= _V2_TOKENS):
        return UNKNOWN
    stream, consumer, count, seq, *_ = tokens[:_V2_TOKENS][-_FIELDS:]
    if not (count.isdecimal() and seq.isdecimal()):
        return UNKNOWN
    return Origin(stream, consumer, int(count), int(seq))


class Delivery:
    """One received copy of a message. Exactly one of ack, nak and term ends it.

    While the broker is away, that answer waits in the connection's buffer.
    """

    __slots__ = ("_connection", "_ended", "_message", "_origin")

    def __init__(self, connection: Connection, message: Msg) -> None:
        self._connection = connection
        self._message = message
        self._origin: Origin | None = None
        self._ended = False

    @property
    def subject(self) -> str:
        """The subject the message was published on."""
        return self._message.subject.removeprefix(self._connection.prefix)

    @property
    def body(self) -> bytes:
        """The bytes, as they were sent."""
        return self._message.data

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, empty where there are none."""
        return self._message.headers or {}

    @property
    def origin(self) -> Origin:
        """The fields of its reply subject."""
        if self._origin is None:
            self._origin = parse_reply(self._message.reply)
        return self._origin

    @property
    def stream(self) -> str:
        """The stream that delivered it."""
        return self.origin.stream.removeprefix(self._connection.prefix)

    @property
    def stream_seq(self) -> int:
        """Its sequence number in the stream: a hint for people, never a key."""
        return self.origin.stream_seq

    @property
    def delivery_count(self) -> int:
        """How often the broker has delivered the message, this time included."""
        return self.origin.delivery_count

    @property
    def token(self) -> str:
        """The reply subject, with which `JetStream.in_progress` extends this delivery from any process."""
        return self._message.reply

    async def ack(self) -> None:
        """End the delivery: its effect is durable."""
        await self._end(b"")

    async def nak(self, delay_seconds: float = 0.0) -> None:
        """Return it to the broker, which delivers it again after the delay."""
        delay = int(delay_seconds * NANOSECONDS)
        await self._end(b'-NAK {"delay": %d}' % delay if delay > 0 else b"-NAK")

    async def in_progress(self) -> None:
        """Restart the broker's timer; nothing to do while the broker is away."""
        if not self._ended and self._connection.is_connected:
            self._connection.publish(self.token, IN_PROGRESS)

    async def term(self, reason: str) -> None:
        """End it for good without an effect: the message cannot be accepted."""
        await self._end(b"+TERM " + " ".join(reason.split())[:_REASON_LENGTH].encode("utf-8", "replace"))

    async def _end(self, answer: bytes) -> None:
        """Send the answer, once: a late second one could contradict the first."""
        if not self._ended:
            self._connection.publish(self.token, answer)
            self._ended = True


class DeliveryPart(Delivery):
    """One of several envelopes in a message: the delivery ends once all its parts have ended.

    It is acknowledged if all of them are, else returned to the broker with the longest of their delays.
    """

    __slots__ = ("_body", "_headers", "_whole")

    def __init__(self, whole: _Whole, body: bytes) -> None:
        super().__init__(whole.delivery._connection, whole.delivery._message)
        self._whole = whole
        self._body = body
        self._headers: Mapping[str, str] | None = None

    @property
    def body(self) -> bytes:
        """The envelope."""
        return self._body

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that this envelope would have in a message of its own."""
        if self._headers is None:
            self._headers = headers_of(self._body, super().headers)
        return self._headers

    async def ack(self) -> None:
        """End this part: its effect is durable."""
        await self._end_part(None)

    async def nak(self, delay_seconds: float = 0.0) -> None:
        """Return the message to the broker after the delay, once its other parts have ended."""
        await self._end_part(delay_seconds)

    async def term(self, reason: str) -> None:
        """End this part for good without an effect."""
        await self._end_part(None)

    async def _end_part(self, delay_seconds: float | None) -> None:
        if self._ended:
            return
        self._ended = True
        await self._whole.end_one(delay_seconds)


# A field of an event's line, and the header that it has in a message of its own.
_HEADERS = {
    "workspace": "Grns-Workspace",
    "task_id": "Grns-Task",
    "version": "Grns-Version",
    "seq": "Grns-Seq",
}


def headers_of(line: bytes, shared: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers of one envelope of a message, whose own headers are `shared`.

    Those of a line that is not an envelope of grns are the message's.
    """
    try:
        fields = orjson.loads(line)
        message_id = str(fields["message_id"])
        own = {"traceparent": traceparent(fields["trace_id"], message_id), "Nats-Msg-Id": message_id}
    except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError):
        return shared
    if "seq" not in fields:
        return {**shared, **own}
    kept = {name: value for name, value in shared.items() if name not in _HEADERS.values()}
    told = {name: str(fields[key]) for key, name in _HEADERS.items() if fields.get(key) is not None}
    return kept | own | told


class _Whole:
    """A delivery that is handled in parts."""

    __slots__ = ("_delay_seconds", "_left", "delivery")

    def __init__(self, delivery: Delivery, parts: int) -> None:
        self.delivery = delivery
        self._left = parts
        self._delay_seconds: float | None = None

    async def end_one(self, delay_seconds: float | None) -> None:
        """Count a part as ended; None is an acknowledged one."""
        if delay_seconds is not None:
            self._delay_seconds = max(delay_seconds, self._delay_seconds or 0.0)
        self._left -= 1
        if self._left:
            return
        if self._delay_seconds is None:
            await self.delivery.ack()
        else:
            failpoint.reach("worker.part_given_back")
            await self.delivery.nak(self._delay_seconds)


# Ends one JSON object and begins another on the next line: no single document contains it.
_BETWEEN = b"}\n{"


def lines_of(body: bytes) -> list[bytes]:
    """Return the envelopes in a message's body. One with more than the relay writes counts as one."""
    if _BETWEEN not in body:
        return [body]
    lines = body.split(b"\n")
    return lines if len(lines) <= MOST_ENVELOPES else [body]


def parts_of(delivery: Delivery) -> list[Delivery]:
    """Return the envelopes of a message, one delivery each; a message of one envelope unchanged."""
    lines = lines_of(delivery.body)
    if len(lines) == 1:
        return [delivery]
    whole = _Whole(delivery, len(lines))
    return [DeliveryPart(whole, line) for line in lines]


def parts_of_stored(message: StoredMessage) -> list[StoredMessage]:
    """Return the envelopes of a stored message, each as if it had a message of its own."""
    lines = lines_of(message.body)
    if len(lines) == 1:
        return [message]
    return [replace(message, body=line, headers=headers_of(line, message.headers)) for line in lines]


# A sender may name any reply subject, also one that only we may publish to: a stream's, or JetStream's API.
# For other clusters and accounts, the server puts a prefix before the inbox, or replaces it.
_INBOX = re.compile(r"(_GR_\.[^\s.*>]+\.[^\s.*>]+\.)?(_INBOX[^\s.*>]*|_R_)(\.[^\s.*>]+)+")


class Request:
    """One message whose sender waits for the answer. It is not in a stream: it arrives once, or never."""

    __slots__ = ("_connection", "_is_answered", "_message")

    def __init__(self, connection: Connection, message: Msg) -> None:
        self._connection = connection
        self._message = message
        self._is_answered = False

    @property
    def subject(self) -> str:
        """The subject the message was published on."""
        return self._message.subject.removeprefix(self._connection.prefix)

    @property
    def body(self) -> bytes:
        """The bytes, as they were sent."""
        return self._message.data

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, empty where there are none."""
        return self._message.headers or {}

    @property
    def is_awaited(self) -> bool:
        """True if its reply subject is an inbox. Its sender may name others, which get none."""
        return is_inbox(self._message.reply)

    def answer(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send the answer, once, without waiting.

        Raises:
            BrokerRefusedError: the answer is too large; you may send a smaller one.
        """
        if self._is_answered or not self.is_awaited:
            return
        self._connection.publish(self._message.reply, body, headers=lines(headers))
        self._is_answered = True


def is_inbox(reply: str) -> bool:
    """Return True for a subject on which programs receive answers only."""
    return _INBOX.fullmatch(reply) is not None


class Serving:
    """A running subscription to requests."""

    def __init__(self, connection: Connection, subscription: NatsSubscription) -> None:
        self._connection = connection
        self._subscription = subscription

    async def stop(self) -> None:
        """Stop receiving requests; those that the broker had sent by then still arrive."""
        await self._connection.unsubscribe(self._subscription)


async def serve(
    connection: Connection, pattern: str, group: str, on_request: Callable[[Request], None]
) -> Serving:
    """Receive requests on a subject, shared by the members of a group."""

    def receive(message: Msg) -> None:
        on_request(Request(connection, message))

    subject = connection.prefix + pattern
    return Serving(connection, await connection.subscribe(subject, receive, group=group))
