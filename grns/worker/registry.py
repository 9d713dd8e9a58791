"""The workers that are known."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from grns.postgres.database import Database, Session
from grns.postgres.paging import Page, bad_cursor, cursor, page_of, parts

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


async def register(
    database: Database,
    claimant: Claimant,
    *,
    concurrency: int,
    version: str,
    host: str | None = None,
    pid: int | None = None,
) -> None:
    """Make a worker known: this process, unless it runs elsewhere."""
    await database.run(
        "register_agent", claimant.agent_id, claimant.workspace, claimant.agent_type,
        host or socket.gethostname(), os.getpid() if pid is None else pid, version, concurrency,
        sorted(claimant.handled), claimant.lease_seconds, MOST_OVER_HTTP,
    )  # fmt: skip


async def touch(
    database: Database, agent_id: str, *, idle_seconds: float, running: int = 0, workspace: str | None = None
) -> bool:
    """Note that a worker lives, how long it has had room and taken nothing, and how many tasks it runs.

    With a `workspace` it is noted only of one that works there. False if the worker is not known (any more).
    """
    rows = await database.run("touch_agent", agent_id, idle_seconds, running, workspace)
    return bool(rows)


async def stop(database: Database, agent_id: str) -> None:
    """Note that a worker has ended in order."""
    await database.run("stop_agent", agent_id)


async def list_agents(
    database: Database | Session, *, workspace: str, limit: int, after: str | None = None
) -> Page[WorkerState]:
    """Return the workers that have not stopped, by pool."""
    agent_type, agent_id = ("", "") if after is None else _place(after)
    found = await database.fetch(WorkerState, "list_agents", workspace, agent_type, agent_id, limit + 1)
    return page_of(found, limit, lambda worker: cursor(worker.agent_type, worker.agent_id))


def _place(said: str) -> tuple[str, str]:
    match parts(said):
        case [agent_type, agent_id]:
            return agent_type, agent_id
    raise bad_cursor(said)
