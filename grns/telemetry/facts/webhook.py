"""Facts of webhooks: what was sent, what was not taken, who is told of nothing any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grns.telemetry.fact import Fact


@dataclass(frozen=True, slots=True)
class DeliveriesMade(Fact):
    """The log was looked through up to `low`; the latest event that was looked at is of this age."""

    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "webhook_deliveries_made"
    deliveries: int
    low: int
    behind: int
    age_seconds: float


@dataclass(frozen=True, slots=True)
class Delivered(Fact):
    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "webhook_delivered"
    webhook: str
    seq: int
    kind: str
    attempt: int
    seconds: float


@dataclass(frozen=True, slots=True)
class NotDelivered(Fact):
    """It was not taken. In `delay_seconds` it is tried again; where that is None, no more."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "webhook_not_delivered"
    repeats: ClassVar[bool] = True
    varies: ClassVar[tuple[str, ...]] = ("seq", "kind", "attempt", "seconds", "delay_seconds", "detail")
    webhook: str
    seq: int
    kind: str
    attempt: int
    error: str
    detail: str
    seconds: float
    delay_seconds: float | None


@dataclass(frozen=True, slots=True)
class WebhookDisabled(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "webhook_disabled"
    webhook: str
    reason: str
