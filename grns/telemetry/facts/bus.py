"""Facts of the broker: the connection to it, and messages that cannot be handled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grns.telemetry.fact import Fact


@dataclass(frozen=True, slots=True)
class RejectedMessageStored(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "message_rejected"
    reason: str
    subject: str
    stream_seq: int
    detail: str


@dataclass(frozen=True, slots=True)
class EventNotHandled(Fact):
    level: ClassVar[str] = "error"
    event: ClassVar[str] = "event_not_handled"
    repeats: ClassVar[bool] = True
    varies: ClassVar[tuple[str, ...]] = ("subject", "stream_seq")
    subscription: str
    subject: str
    stream_seq: int
    error_class: str
    error: str
    exception: str  # the traceback; none where Postgres or the broker was away


@dataclass(frozen=True, slots=True)
class EventNotAskedFor(Fact):
    """The broker delivered an event that is not among the subscription's kinds; no handler sees it."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "event_skipped"
    repeats: ClassVar[bool] = True
    varies: ClassVar[tuple[str, ...]] = ("subject", "stream_seq")
    subscription: str
    subject: str
    stream_seq: int


@dataclass(frozen=True, slots=True)
class TransportChanged(Fact):
    """Something that the transport met: a lost connection, a repair, a missing durable."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "transport"
    what: str
    detail: str


@dataclass(frozen=True, slots=True)
class TransportFailing(TransportChanged):
    """The broker cannot be reached, or has refused something; told again with every attempt."""

    repeats: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class JetStreamOutOfRoom(Fact):
    """JetStream stores nothing: too little storage, a full disk, or it has stopped until a restart."""

    level: ClassVar[str] = "error"
    event: ClassVar[str] = "jetstream_out_of_room"
    repeats: ClassVar[bool] = True
    error: str
    advice: str = "free the disk or give JetStream more room, then restart nats-server; tasks run meanwhile"


@dataclass(frozen=True, slots=True)
class TransportReady(Fact):
    """What the transport tells when all goes well: it is connected, a stream or a durable was made."""

    event: ClassVar[str] = "transport"
    what: str
    detail: str
