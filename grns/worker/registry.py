"""The workers that are known."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from grns.errors import ConflictError
from grns.postgres.database import Database, Session
from grns.postgres.paging import Page, bad_cursor, cursor, page_of, parts
from grns.tasks.agents import MOST_AGENTS

if TYPE_CHECKING:
    from grns.worker.claims import Claimant

# The pid of an HTTP worker: its process is unknown.
NO_PROCESS = 0
# Agents over HTTP that are known of a workspace; one more replaces the one that has been silent for longest.
MOST_OVER_HTTP = 1000


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker that has not stopped. If it is not alive, it sent no heartbeat for a lease."""

    agent_id: str
    agent_type: str
    host: str
    pid: int
    version: str
    concurrency: int
    running: int
    task_types: list[str]
    lease_seconds: float
    started_at: datetime
    last_seen_at: datetime
    worked_at: datetime
    is_alive: bool
    agent: str | None


@dataclass(frozen=True, slots=True)
class Touched:
    """Whether a worker is known (still), what its agent is told, and whether that has said that it ends."""

    is_known: bool
    order: str | None
    has_stopped: bool = False


async def register(
    database: Database,
    claimant: Claimant,
    *,
    concurrency: int,
    version: str,
    host: str | None = None,
    pid: int | None = None,
) -> int | None:
    """Make a worker known: this process, unless it runs elsewhere.

    Returns how many tasks its agent may have at a time; None if it is none, or one that is not registered.
    Raises ConflictError: an agent of this name is of another pool.
    """
    rows = await database.run(
        "register_worker", claimant.agent_id, claimant.workspace, claimant.agent_type,
        host or socket.gethostname(), os.getpid() if pid is None else pid, version, concurrency,
        sorted(claimant.handled), claimant.lease_seconds, MOST_OVER_HTTP, claimant.agent, MOST_AGENTS,
    )  # fmt: skip
    if not rows:
        raise ConflictError(
            f"agent {claimant.agent} is registered for another pool than {claimant.agent_type}"
        )
    most: int | None = rows[0]["most"]
    return most


async def touch(
    database: Database,
    agent_id: str,
    *,
    idle_seconds: float,
    running: int = 0,
    workspace: str | None = None,
    usage: tuple[float | None, float | None] = (None, None),
) -> Touched:
    """Note that a worker lives, how long it has had room and taken nothing, and how many tasks it runs.

    With a `workspace` it is noted only of one that works there. `usage` is its memory in MiB and its CPU in
    percent.
    """
    rows = await database.run("touch_worker", agent_id, idle_seconds, running, workspace, *usage)
    if not rows:
        return Touched(is_known=False, order=None)
    return Touched(is_known=True, order=rows[0]["order"], has_stopped=bool(rows[0]["has_stopped"]))


async def stop(database: Database, agent_id: str) -> None:
    """Note that a worker has ended in order."""
    await database.run("stop_worker", agent_id)


async def list_workers(
    database: Database | Session, *, workspace: str, limit: int, after: str | None = None
) -> Page[WorkerState]:
    """Return the workers that have not stopped, by pool."""
    agent_type, agent_id = ("", "") if after is None else _place(after)
    found = await database.fetch(WorkerState, "list_workers", workspace, agent_type, agent_id, limit + 1)
    return page_of(found, limit, lambda worker: cursor(worker.agent_type, worker.agent_id))


def _place(said: str) -> tuple[str, str]:
    match parts(said):
        case [agent_type, agent_id]:
            return agent_type, agent_id
    raise bad_cursor(said)
