"""What has to be known of a task, and of what is around it, to say why it is where it is.

All seconds are by the database's clock, at the moment in which it was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from grns.model.daemon_status import DaemonStatus
from grns.model.task import Task


@dataclass(frozen=True, slots=True)
class PoolWorkers:
    """Who may run a task: the live workers of its agent type, and those of them that have a handler for it.

    `task_types` are what any of the live ones handle, `silent_workers` those that neither ended in order nor
    were heard of for a lease, and `silent_seconds` is since when none was; None if none is known. `served_by`
    are other pools that handle the task's type.
    """

    workers: int = 0
    serving: int = 0
    slots: int = 0
    running: int = 0
    task_types: Sequence[str] = ()
    served_by: Sequence[str] = ()
    silent_workers: int = 0
    silent_seconds: float | None = None

    @property
    def free(self) -> int:
        """How many tasks those that serve it have room for, as of their last heartbeats."""
        return max(0, self.slots - self.running)


@dataclass(frozen=True, slots=True)
class Owner:
    """The worker that has claimed a task: what it said of itself, and for how long it has been silent."""

    agent_id: str
    host: str | None = None
    pid: int | None = None
    version: str | None = None
    lease_seconds: float | None = None
    silent_seconds: float | None = None
    has_stopped: bool = False


@dataclass(frozen=True, slots=True)
class PauseSeen:
    """A pause of the task's pool that is in force: of one task type, or of all of it (None)."""

    task_type: str | None
    paused_by: str
    paused_at: datetime
    reason: str | None = None
    left_seconds: float | None = None
    budget: str | None = None


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is queued in the same pool and comes first; where it `has_more`, there is so much at least."""

    count: int = 0
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class RowLock:
    """A transaction that is open and has locked a task's row, or refers to it; and whose it is."""

    pid: int | None = None
    seconds: float | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class SubjectSeen:
    """The durable consumer of the task's priority subject: messages that wait or run, and clients."""

    exists: bool = True
    pending: int = 0
    ack_pending: int = 0
    fetching: int = 0
    paused_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class IssueSeen:
    """The issue that a dead or failed task belongs to."""

    fingerprint: str
    state: str
    open_count: int
    total: int
    first_seen: datetime
    owner: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class NeedSeen:
    """A task, or a workflow, that a task needs, and that has not ended as it should."""

    id: str
    name: str | None
    outcome: str
    ended_as: str | None
    task_type: str | None
    status: str | None


@dataclass(frozen=True, slots=True)
class TaskPauseSeen:
    """Who has paused the task, when and why."""

    paused_at: datetime
    paused_by: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class HoldSeen:
    """A workflow that holds back its tasks: since when it is paused; None if it is to be cancelled."""

    workflow_id: str
    paused_at: datetime | None
    paused_by: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class LimitSeen:
    """A key under which a task falls: how many of it are queued or running, and wait before the task."""

    key: str
    max_tasks: int | None
    rate: str | None
    held: int
    ahead: int
    paused_at: datetime | None = None
    paused_by: str | None = None
    reason: str | None = None

    @property
    def name(self) -> str:
        """Name of the limit."""
        return self.key.partition(":")[0]


@dataclass(frozen=True, slots=True)
class NeedsSeen:
    """What a task needs: how much is open, met and required, and the first few that are not met."""

    open: int = 0
    met: int = 0
    required: int = 0
    unmet: Sequence[NeedSeen] = ()
    hold: HoldSeen | None = None


@dataclass(frozen=True, slots=True)
class AgentSeen:
    """An agent that may be to run a task: how many tasks more it may have, and what it cannot do."""

    name: str
    agent_type: str
    health: str
    order: str | None
    room: int
    missing: Sequence[str] = ()

    @property
    def is_there(self) -> bool:
        """Whether it has sent a heartbeat lately."""
        return self.health in ("healthy", "degraded")


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """All of it. `history` is what the log has of the task up to its present version, in order.

    `trouble` says why the broker was not asked, where it should have been.
    """

    now: datetime
    task: Task
    attempt_limit: int | None = None
    cancel_reason: str | None = None
    cancel_actor: str | None = None
    stats: PoolWorkers = PoolWorkers()
    owner: Owner | None = None
    pauses: Sequence[PauseSeen] = ()
    ahead: Ahead = Ahead()
    lock: RowLock | None = None
    pulse: DaemonStatus = field(default_factory=DaemonStatus)
    subject: SubjectSeen | None = None
    trouble: str | None = None
    issue: IssueSeen | None = None
    history: Sequence[Mapping[str, Any]] = ()
    needs: NeedsSeen | None = None
    task_pause: TaskPauseSeen | None = None
    limits: Sequence[LimitSeen] = ()
    agents: Sequence[AgentSeen] = ()

    @property
    def is_routed(self) -> bool:
        """Whether only some agents may run the task."""
        return self.task.target_agent is not None or self.task.required_capabilities is not None

    def since(self, moment: datetime | None) -> float:
        """Return the seconds from a moment until now; 0 where there is none."""
        return 0.0 if moment is None else (self.now - moment).total_seconds()

    def commands_at(self, version: int) -> int:
        """Return how many commands were sent for the task while it was at a version."""
        return sum(row["has_command"] and row["version"] == version for row in self.history)
