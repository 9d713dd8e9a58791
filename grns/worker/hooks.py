"""Functions that a pool calls besides its handlers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grns.worker.context import Context


@dataclass(slots=True)
class Hooks:
    """Functions that a pool calls besides its handlers."""

    startup: list[Callable[[], Any]] = field(default_factory=list)
    shutdown: list[Callable[[], Any]] = field(default_factory=list)
    attempt_started: list[Callable[[Context], Any]] = field(default_factory=list)
    attempt_finished: list[Callable[[Context, AttemptEnd], Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How the handler of an attempt ended, before it is written.

    Attributes:
        verb: `succeed`, `fail`, `retry`, `snooze`, `suspend` (it sleeps or waits in a step), `cancel` or
            `release`. A retry of the last attempt makes the task `dead`.
        error: what the handler raised, or None.
        duration_seconds: how long it ran.
    """

    verb: str
    error: BaseException | None
    duration_seconds: float
