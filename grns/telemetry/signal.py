"""Signals: what happened, emitted once where it happened; listeners log it, count it or note it in a test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, dataclass_transform

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Signal:
    """Something that happened; each kind is a dataclass declared with `@signal`.

    `event` and `level` are those of its log line. A signal with `throttle_by` is logged at growing intervals
    while those of its fields stay the same.
    """

    event: ClassVar[str]
    level: ClassVar[str]
    severity: ClassVar[int]
    throttle_by: ClassVar[tuple[str, ...] | None]
    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()

    # Once for all kinds: a dataclass that makes its own takes twice as long to declare, at each start.
    def __eq__(self, other: object) -> bool:
        """Compare kind and fields."""
        if self.__class__ is not other.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__match_args__)

    def __hash__(self) -> int:
        """Return a hash of kind and fields."""
        return hash((self.__class__, *(getattr(self, name) for name in self.__match_args__)))

    def __repr__(self) -> str:
        """Return kind and fields."""
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{self.__class__.__name__}({fields})"


Kind = TypeVar("Kind", bound=Signal)


@dataclass_transform(frozen_default=True)
def signal(
    event: str, *, level: str = "info", throttle_by: tuple[str, ...] | None = None, frozen: bool = True
) -> Callable[[type[Kind]], type[Kind]]:
    """Declare a kind of signal.

    Args:
        event: Name of its log line, `noun_participle`.
        level: Level of its log line.
        throttle_by: Fields that identify a problem which may last; None logs each signal.
        frozen: False for kinds emitted for each task: creating a frozen dataclass takes five times as long.
    """

    def declare(kind: type[Kind]) -> type[Kind]:
        made = dataclass(frozen=frozen, slots=True, eq=False, repr=False)(kind)
        made.event, made.level, made.severity, made.throttle_by = event, level, LEVELS[level], throttle_by
        return made

    return declare


def log_fields(signal: Signal) -> dict[str, Any]:
    """Return the fields of a signal's log line; `_throttle` is for `LogThrottle`."""
    fields = {name: getattr(signal, name) for name in signal.__match_args__}
    if signal.throttle_by is not None:
        fields["_throttle"] = tuple(fields[name] for name in signal.throttle_by)
    if not fields.get("exception", True):
        del fields["exception"]
    return fields


Emit = Callable[[Signal], None]


class Listener(Protocol):
    """Receives signals: a log, metrics, a test."""

    def receive(self, signal: Signal) -> None:
        """Process one signal. Must not block and must not raise."""


class Telemetry:
    """Emits signals to its listeners."""

    def __init__(self, *listeners: Listener) -> None:
        self._receivers = [listener.receive for listener in listeners]

    def emit(self, signal: Signal) -> None:
        """Pass a signal to each listener."""
        for receive in self._receivers:
            receive(signal)
