"""Facts of the request desk: what became of what others ask for over the bus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grns.telemetry.fact import Fact


@dataclass(frozen=True, slots=True)
class CommandHandled(Fact):
    """An order was carried out or refused; `answer` is the word for what became of it, or the code."""

    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "command_handled"
    kind: str
    way: str  # command, request
    answer: str
    message_id: str | None
    task_id: str | None


@dataclass(frozen=True, slots=True)
class RequestWindowFull(Fact):
    """So many requests are under way that others are turned away."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "request_window_full"
    repeats: ClassVar[bool] = True
    varies: ClassVar[tuple[str, ...]] = ("requests", "request_bytes")
    requests: int
    request_bytes: int


@dataclass(frozen=True, slots=True)
class CommandCrashed(Fact):
    level: ClassVar[str] = "error"
    event: ClassVar[str] = "command_crashed"
    subject: str
    error_class: str
    error: str
