"""Read what explains the status of a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from grns.diagnose.explain.snapshot import (
    AgentSeen,
    Ahead,
    HoldSeen,
    IssueSeen,
    LimitSeen,
    NeedSeen,
    NeedsSeen,
    Owner,
    PauseSeen,
    PoolWorkers,
    RowLock,
    TaskPauseSeen,
    TaskSnapshot,
)
from grns.errors import NotFoundError
from grns.model.json import loads_stored
from grns.model.task import Task
from grns.model.text import lasted
from grns.postgres.database import Database, Row, Session
from grns.stats.issues import read_issue
from grns.tasks import pauses as pause
from grns.tasks import read

_MOST_COUNTED = 1000
_MOST_TYPES = 20
MOST_STEPS = 500
_MOST_AGENTS = 100
_OF_TASKS = [one.name for one in fields(Task)]


async def read_situation(
    database: Database | Session, task_id: str, *, workspace: str
) -> TaskSnapshot | None:
    """Return a task with what is around it in its workspace, None where there is none.

    Of what concerns all workspaces, as daemons and the broker do, it knows nothing.
    """
    rows = await database.run("read_situation", task_id, workspace, _MOST_COUNTED + 1, _MOST_TYPES)
    if not rows:
        return None
    row = rows[0]
    task = read.task({name: row[name] for name in _OF_TASKS})
    # What has happened since is for the next look.
    history = await read_story(database, task_id, workspace=workspace, version=task.version)
    paused = [] if task.is_terminal else await pause.in_force(database, workspace, [task.agent_type])
    return TaskSnapshot(
        now=row["now"],
        task=task,
        attempt_limit=row["attempt_limit"] if row["attempt_limit"] is not None else task.max_attempts,
        cancel_reason=row["cancel_reason"],
        cancel_actor=row["cancel_actor"],
        stats=_workers(row),
        owner=_owner(row),
        pauses=[_pause(one) for one in paused if one.task_type in (None, task.task_type)],
        needs=_needs(row),
        task_pause=_task_pause(row),
        limits=_limits(row),
        ahead=Ahead(min(row["ahead"], _MOST_COUNTED), row["ahead"] > _MOST_COUNTED),
        lock=_lock(row),
        issue=await _issue(database, task),
        history=history,
        agents=await _agents(database, task),
    )


async def _agents(database: Database | Session, task: Task) -> Sequence[AgentSeen]:
    """Return the agents that a task that only some may run is for; those that can do most come first."""
    if task.is_terminal or (task.target_agent is None and task.required_capabilities is None):
        return ()
    said = (
        task.workspace,
        task.agent_type,
        task.target_agent,
        task.required_capabilities or [],
        _MOST_AGENTS,
    )
    return await database.fetch(AgentSeen, "read_routing", *said)


async def read_story(
    database: Database | Session, task_id: str, *, workspace: str, version: int | None = None
) -> list[dict[str, Any]]:
    """Return the latest rows of the log about a task, up to one of its versions, in order.

    Of payloads they have what a story needs.
    """
    rows = await database.run("read_story", task_id, workspace, version, MOST_STEPS)
    return [{**row, "payload": loads_stored(row["payload"])} for row in reversed(rows)]


def _needs(row: Row) -> NeedsSeen | None:
    if row["needs_open"] is None:
        return None
    unmet = [NeedSeen(**one) for one in loads_stored(row["needs"]) or ()]
    hold = None
    if row["held_by"] is not None:
        hold = HoldSeen(row["held_by"], row["held_at"], row["held_actor"], row["held_reason"])
    return NeedsSeen(row["needs_open"], row["needs_met"], row["needs_required"], unmet, hold)


def _limits(row: Row) -> list[LimitSeen]:
    found = []
    for one in loads_stored(row["limits_seen"]) or ():
        rate = None if one["rate_count"] is None else f"{one['rate_count']} in {lasted(one['rate_seconds'])}"
        paused_at = None if one["paused_at"] is None else datetime.fromisoformat(one["paused_at"])
        found.append(
            LimitSeen(
                one["key"], one["max_tasks"], rate, one["held"], row["limited_ahead"], paused_at,
                one["paused_by"], one["reason"],
            )
        )  # fmt: skip
    return found


def _task_pause(row: Row) -> TaskPauseSeen | None:
    if row["task_paused_at"] is None:
        return None
    return TaskPauseSeen(row["task_paused_at"], row["task_paused_by"], row["task_pause_reason"])


def _workers(row: Row) -> PoolWorkers:
    return PoolWorkers(
        workers=row["workers"],
        serving=row["serving"],
        slots=row["slots"],
        running=row["running"],
        task_types=row["task_types"],
        served_by=row["served_by"],
        silent_workers=row["silent_workers"],
        silent_seconds=row["silent_seconds"],
    )


def _owner(row: Row) -> Owner | None:
    if row["owner_agent_id"] is None:
        return None
    return Owner(
        agent_id=row["owner_agent_id"],
        host=row["owner_host"],
        pid=row["owner_pid"],
        version=row["owner_version"],
        lease_seconds=row["owner_lease_seconds"],
        silent_seconds=row["owner_silent_seconds"],
        has_stopped=row["owner_has_stopped"],
    )


def _pause(one: pause.Pause) -> PauseSeen:
    return PauseSeen(one.task_type, one.paused_by, one.paused_at, one.reason, one.left_seconds, one.budget)


def _lock(row: Row) -> RowLock | None:
    return (
        None if row["lock_pid"] is None else RowLock(row["lock_pid"], row["lock_seconds"], row["lock_name"])
    )


async def _issue(database: Database | Session, task: Task) -> IssueSeen | None:
    """Return the issue of a task that needs a person; None also where it is not counted yet."""
    if task.status not in ("dead", "failed") or task.fingerprint is None:
        return None
    try:
        found = await read_issue(database, workspace=task.workspace, fingerprint=task.fingerprint)
    except NotFoundError:
        return None
    return IssueSeen(**{one.name: getattr(found, one.name) for one in fields(IssueSeen)})
