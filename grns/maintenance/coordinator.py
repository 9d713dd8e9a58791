"""What one would ask a coordinator: whether it is there, what it sees, and that it looks now.

grns has no single coordinator: reaper, retry scheduler and relay are daemons of their own, and each may run
twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from grns.maintenance.reaper import reap
from grns.maintenance.scheduler import promote
from grns.model import subjects
from grns.nats import JetStream
from grns.postgres.database import Database, Session

Level = Literal["INFO", "WARN", "ERROR"]

_BATCH = 200
_ERRORS = (
    "evt.task.dead",
    "evt.task.failed",
    "evt.agent.*.dead",
    "evt.workflow.failed",
    "evt.schedule.missed",
)
_WARNINGS = (
    "evt.task.lease_expired", "evt.task.retry_scheduled", "evt.attempt.overdue", "evt.agent.*.stale",
    "evt.workflow.threshold",
)  # fmt: skip
_REST = (
    "evt.task.released", "evt.task.snoozed", "evt.agent.*.started", "evt.agent.*.stopped",
    "evt.agent.*.recovered", "evt.agent.*.spawned",
)  # fmt: skip
KINDS: dict[Level, Sequence[str]] = {
    "ERROR": _ERRORS,
    "WARN": _ERRORS + _WARNINGS,
    "INFO": _ERRORS + _WARNINGS + _REST,
}
"""Kinds of the event log that tell of coordination, by their least level."""


@dataclass(frozen=True, slots=True)
class CoordinatorStats:
    """How many tasks wait and run, and how many agents are there, or late, in all workspaces."""

    pending_tasks: int
    running_tasks: int
    healthy_agents: int
    stale_agents: int


@dataclass(frozen=True, slots=True)
class CoordinatorStatus:
    """How the daemons are that put tasks back and send them.

    Attributes:
        active: whether a reaper ticks and a relay leads.
        instance_id: the relay that leads; None if none does.
        workspaces: those with tasks or agents, by name, 1,000 at most.
        last_heartbeat: when a reaper ticked last.
        stats: counts of tasks, half a second old, and of agents.
    """

    active: bool
    instance_id: str | None
    workspaces: list[str]
    last_heartbeat: datetime | None
    stats: CoordinatorStats


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a look has put back: tasks whose lease was over, and tasks that were due.

    `is_holding` is true after an outage: workers may renew first, and nothing is taken from them.
    """

    reaped: int
    promoted: int
    is_holding: bool


async def read_coordinator(database: Database | Session) -> CoordinatorStatus:
    """Return how the daemons are."""
    (row,) = await database.run("read_coordinator")
    stats = CoordinatorStats(
        row["pending_tasks"], row["running_tasks"], row["healthy_agents"], row["stale_agents"]
    )
    return CoordinatorStatus(
        row["active"], row["instance_id"], row["workspaces"], row["last_heartbeat"], stats
    )


async def recover(database: Database, transport: JetStream) -> Recovery:
    """Do now what reaper and retry scheduler do anyway, in all workspaces, and wake the relay.

    It is no shortcut: a lease that is not over is left alone, and after an outage reapers hold still.
    """
    reaped = promoted = 0
    while rows := await reap(database, _BATCH, None):
        reaped += len(rows)
    while rows := await promote(database, _BATCH, None):
        promoted += len(rows)
    await transport.nudge(subjects.RELAY_NUDGE)
    (state,) = await database.run("read_coordinator")
    return Recovery(reaped, promoted, state["is_holding"])
