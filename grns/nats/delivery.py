"""One received copy of a message, ended by publishing to its reply subject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nats.aio.msg import Msg

from grns.nats.config import NANOSECONDS
from grns.nats.connection import Connection

ACK_PREFIX = "$JS.ACK."
IN_PROGRESS = b"+WPI"

# From the right: stream, consumer, delivered, stream seq, consumer seq, time, pending.
_V1_TOKENS, _V2_TOKENS, _FIELDS = 9, 11, 7
_REASON_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Origin:
    """What the reply subject of a delivery tells."""

    stream: str
    consumer: str
    delivery_count: int
    stream_seq: int


UNKNOWN = Origin("", "", 1, 0)


def parse_reply(reply: str) -> Origin:
    """Take `$JS.ACK.…` apart, in both forms that servers use.

    v1 is `$JS.ACK.<fields>`, v2 `$JS.ACK.<domain>.<account>.<fields>`, where later
    servers may append tokens. It holds hints only: a form that nobody knows gives `UNKNOWN`.
    """
    tokens = reply.split(".")
    if not reply.startswith(ACK_PREFIX) or not (len(tokens) == _V1_TOKENS or len(tokens) >= _V2_TOKENS):
        return UNKNOWN
    stream, consumer, count, seq, *_ = tokens[:_V2_TOKENS][-_FIELDS:]
    if not (count.isdecimal() and seq.isdecimal()):
        return UNKNOWN
    return Origin(stream, consumer, int(count), int(seq))


class JetStreamDelivery:
    """Implements `Delivery`. While the broker is away its endings wait in the connection's buffer."""

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
        """What the broker says of this copy."""
        if self._origin is None:
            self._origin = parse_reply(self._message.reply)
        return self._origin

    @property
    def stream(self) -> str:
        """The stream that delivered it."""
        return self.origin.stream.removeprefix(self._connection.prefix)

    @property
    def stream_seq(self) -> int:
        """Its place in the stream."""
        return self.origin.stream_seq

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this time included."""
        return self.origin.delivery_count

    @property
    def token(self) -> str:
        """The reply subject: whoever publishes there speaks for this delivery."""
        return self._message.reply

    async def ack(self) -> None:
        """End the delivery: its effect is durable."""
        await self._end(b"")

    async def nak(self, delay_seconds: float = 0.0) -> None:
        """Give it back; it is delivered again after the delay."""
        delay = int(delay_seconds * NANOSECONDS)
        await self._end(b'-NAK {"delay": %d}' % delay if delay > 0 else b"-NAK")

    async def in_progress(self) -> None:
        """Restart the broker's timer; nothing to do while the broker is away."""
        if not self._ended and self._connection.is_connected:
            self._connection.publish(self.token, IN_PROGRESS)

    async def term(self, reason: str) -> None:
        """End it for good without an effect; the broker's advisory carries the reason."""
        await self._end(b"+TERM " + " ".join(reason.split())[:_REASON_LENGTH].encode("utf-8", "replace"))

    async def _end(self, answer: bytes) -> None:
        """Say how it ended: once, since a late second answer could contradict the first."""
        if not self._ended:
            self._connection.publish(self.token, answer)
            self._ended = True
