"""Facts of agents that work over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grns.telemetry.fact import Fact


@dataclass(frozen=True, slots=True)
class AgentNudged(Fact):
    """An agent was told that something waits for it. Of its URL only the host is shown."""

    level: ClassVar[str] = "debug"
    event: ClassVar[str] = "agent_nudged"
    agent_type: str
    host: str


@dataclass(frozen=True, slots=True)
class NudgeFailed(Fact):
    """It was not heard; it asks by itself sooner or later."""

    level: ClassVar[str] = "warning"
    event: ClassVar[str] = "nudge_failed"
    repeats: ClassVar[bool] = True
    varies: ClassVar[tuple[str, ...]] = ("pause_seconds",)
    agent_type: str
    host: str
    error: str
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class ClaimReturned(Fact):
    """Whoever asked for it had gone before it was theirs: it was given back, unspent."""

    event: ClassVar[str] = "claim_returned"
    task_id: str
    attempt: int
    trace_id: str
    verdict: str
