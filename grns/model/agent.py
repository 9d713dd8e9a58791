"""Agents by name: what is registered of one, how it is, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from grns.model.field_types import AgentId
from grns.model.submission import AgentType, Token

Health = Literal["healthy", "degraded", "stale", "dead", "stopped", "absent"]
Order = Literal["drain", "stop"]
HEALTHS: tuple[Health, ...] = ("healthy", "degraded", "stale", "dead", "stopped", "absent")

# A reader that looks three times in an interval sees each heartbeat; fewer than three may be late by chance.
BEATS_TO_DEGRADED = 3

Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
_Size = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
_Seconds = Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)]
_Line = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")]


class AgentProfile(BaseModel):
    """What is registered of an agent.

    `agent_type` is its pool. `capabilities` are what it can do, such as `typescript`. An agent is `degraded`
    without a heartbeat for three intervals, `stale` after `stale_threshold_seconds`, and `dead` after three
    times as long. `agent_url` is where it is told that a task waits for it; its host is one of
    `GRNS_WAKEUP_HOSTS`. With `coordinator_enabled`, a session is begun for it at `GRNS_SPAWN_URL` if a task
    waits for it while it is away.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent_type: AgentType
    title: _Line | None = None
    model: _Line | None = None
    capabilities: Annotated[tuple[Token, ...], Field(max_length=50)] = ()
    max_concurrent_tasks: Annotated[int, Field(ge=1, le=100_000, strict=True)] = 1
    heartbeat_interval_seconds: _Seconds = 10.0
    stale_threshold_seconds: Annotated[float, Field(ge=3, le=7 * 86_400, allow_inf_nan=False)] = 100.0
    metadata: dict[str, Any] | None = None
    agent_url: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    coordinator_enabled: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _check_seconds(self) -> AgentProfile:
        if self.stale_threshold_seconds < BEATS_TO_DEGRADED * self.heartbeat_interval_seconds:
            raise ValueError("stale_threshold_seconds is at least three times heartbeat_interval_seconds")
        return self


class AgentHeartbeat(BaseModel):
    """What an agent says of itself. `stopped` is its last word: the next heartbeat begins another life."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Literal["idle", "working", "blocked", "stopped"] = "idle"
    current_task_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None
    progress_percent: Percent | None = None
    current_step: _Line | None = None
    memory_mb: _Size | None = None
    cpu_percent: _Size | None = None


class NamedHeartbeat(AgentHeartbeat):
    """The heartbeat of one of several agents. `agent_id` is its life, as in a heartbeat of one."""

    name: Token
    agent_id: AgentId | None = None


@dataclass(frozen=True, slots=True)
class NamedOrder:
    """What one of several agents is told: `drain`, `stop`, or None: work."""

    name: str
    order: Order | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class AgentOrder:
    """What an agent is told: `drain` (end once your tasks have ended), `stop` (end now), or None: work."""

    order: Order | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent: what is registered, whether it is there, and what it does.

    Attributes:
        name: its name; it outlasts its lives.
        agent_type: its pool.
        title, model, capabilities, metadata: as they were registered.
        max_concurrent_tasks: how many tasks it runs at once at most.
        heartbeat_interval_seconds: how often it says that it lives.
        stale_threshold_seconds: after how long without a heartbeat it is stale.
        agent_url: where it is told that a task waits for it.
        coordinator_enabled: whether a session is begun for it if a task waits while it is away.
        session_key: key of the latest session that was begun for it.
        created_at: when it was registered.
        health: `healthy`, `degraded`, `stale`, `dead` by the age of its last heartbeat; `stopped` if it has
            said that it ends; `absent` if it has never been there.
        status: `idle`, `working` or `blocked`, as it says.
        agent_id: its latest life; None if it has had none.
        started_at, last_seen_at, next_expected_at: its begin, its last heartbeat, and when the next is due.
        running: how many tasks it runs, as of the last heartbeat.
        current_task_id, progress_percent, current_step, memory_mb, cpu_percent: what it says of itself.
        order: what it is told to do: `drain`, `stop`, or None.
        ordered_at, ordered_by, order_reason: the last order, also one that an earlier life was given.
    """

    name: str
    agent_type: str
    title: str | None
    model: str | None
    capabilities: list[str]
    max_concurrent_tasks: int
    heartbeat_interval_seconds: float
    stale_threshold_seconds: float
    metadata: Mapping[str, Any] | None
    agent_url: str | None
    coordinator_enabled: bool
    session_key: str | None
    created_at: datetime
    health: Health
    status: Literal["idle", "working", "blocked"]
    agent_id: str | None
    started_at: datetime | None
    last_seen_at: datetime | None
    next_expected_at: datetime | None
    running: int
    current_task_id: str | None
    progress_percent: float | None
    current_step: str | None
    memory_mb: float | None
    cpu_percent: float | None
    order: Order | None
    ordered_at: datetime | None
    ordered_by: str | None
    order_reason: str | None


@dataclass(frozen=True, slots=True)
class AgentHealth:
    """How an agent is: fields of `Agent`."""

    name: str
    health: Health
    status: Literal["idle", "working", "blocked"]
    agent_id: str | None
    started_at: datetime | None
    last_seen_at: datetime | None
    next_expected_at: datetime | None
    running: int
    current_task_id: str | None
    progress_percent: float | None
    current_step: str | None
    memory_mb: float | None
    cpu_percent: float | None
    order: Order | None


@dataclass(frozen=True, slots=True)
class AgentWork:
    """A task that an agent runs, or one in the queue that only it may run, which has no times yet."""

    id: str
    task_type: str
    status: str
    attempt: int
    started_at: datetime | None
    lease_until: datetime | None
    progress_percent: float | None
    current_step: str | None
