"""Facts of the relay: who leads, what was published, what the broker lost and got again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grns.telemetry.fact import Fact


@dataclass(frozen=True, slots=True)
class RelayBecameLeader(Fact):
    event: ClassVar[str] = "relay_became_leader"
    epoch: int
    low: int


@dataclass(frozen=True, slots=True)
class RelayStandby(Fact):
    event: ClassVar[str] = "relay_became_standby"
    reason: str


@dataclass(frozen=True, slots=True)
class MessagesPublished(Fact):
    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "messages_published"
    kind: str
    messages: int


@dataclass(frozen=True, slots=True)
class MessageRefused(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "message_refused"
    kind: str
    seq: int
    code: str


@dataclass(frozen=True, slots=True)
class RelayProgressed(Fact):
    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "relay_progressed"
    low: int
    in_flight: int
    missing: int
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class RelayHeldUp(Fact):
    """So much waits for streams that do not take it that nothing more of the log is read, for anybody."""

    level: ClassVar[str] = "error"
    event: ClassVar[str] = "relay_held_up"
    repeats: ClassVar[bool] = True
    messages: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class BrokerLost(Fact):
    level: ClassVar[str] = "error"
    event: ClassVar[str] = "broker_lost_messages"
    reason: str
    replay_from: int


@dataclass(frozen=True, slots=True)
class EventsReplayed(Fact):
    event: ClassVar[str] = "events_replayed"
    events: int


@dataclass(frozen=True, slots=True)
class ReplayTaken(Fact):
    """Somebody has asked for a stretch of the log to be published again, and this relay does it."""

    event: ClassVar[str] = "replay_taken"
    replay: int
    after_seq: int
    up_to_seq: int


@dataclass(frozen=True, slots=True)
class ReplayDone(Fact):
    event: ClassVar[str] = "replay_done"
    replay: int
    stored: int
    duplicates: int
