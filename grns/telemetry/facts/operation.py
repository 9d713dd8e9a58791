"""Facts of bulk operations: what a batch moved, and how one goes on or ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grns.telemetry.fact import Fact


@dataclass(frozen=True, slots=True)
class BatchMoved(Fact):
    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "batch_moved"
    operation: int
    action: str
    tasks: int
    skipped: int


@dataclass(frozen=True, slots=True)
class OperationGoesOn(Fact):
    """Its canary has succeeded, or it is done."""

    event: ClassVar[str] = "operation_resumed"
    operation: int
    action: str
    state: str


@dataclass(frozen=True, slots=True)
class OperationStopped(Fact):
    """It waits for somebody to decide, or cannot be done."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "operation_stopped"
    operation: int
    action: str
    state: str
    reason: str
