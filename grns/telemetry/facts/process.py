"""Facts of any process: it began, it ended, it could not do what it is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from grns.telemetry.fact import Fact


@dataclass(frozen=True, slots=True)
class ServiceStarted(Fact):
    event: ClassVar[str] = "service_started"
    service: str


@dataclass(frozen=True, slots=True)
class SettingMisspelt(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "setting_unknown"
    detail: str


@dataclass(frozen=True, slots=True)
class ServiceStopped(Fact):
    event: ClassVar[str] = "service_stopped"
    service: str


@dataclass(frozen=True, slots=True)
class TickFailed(Fact):
    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "tick_failed"
    repeats: ClassVar[bool] = True
    service: str
    error: str


@dataclass(frozen=True, slots=True)
class ChoresFailed(Fact):
    """Chores of one round of the janitor that failed for the same reason."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "chores_failed"
    repeats: ClassVar[bool] = True
    varies: ClassVar[tuple[str, ...]] = ("chores",)
    error: str
    chores: Sequence[str]


@dataclass(frozen=True, slots=True)
class PostgresAwaited(Fact):
    """A process that starts waits for Postgres."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "postgres_awaited"
    repeats: ClassVar[bool] = True
    varies: ClassVar[tuple[str, ...]] = ("error",)
    error: str
    advice: str


@dataclass(frozen=True, slots=True)
class PostgresFailedOver(Fact):
    """Another server than before: whatever it had not received of the last commits is lost."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "postgres_failed_over"
    failover: int | None
    old_timeline: int
    new_timeline: int
    is_same_cluster: bool
    last_seen_at: str
    detail: str


@dataclass(frozen=True, slots=True)
class SpansNotSent(Fact):
    """The collector of traces does not take what it is sent; spans are dropped, and nothing else waits."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "spans_not_sent"
    repeats: ClassVar[bool] = True
    varies: ClassVar[tuple[str, ...]] = ("detail",)
    detail: str
