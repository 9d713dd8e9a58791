"""The workers that are known."""

from __future__ import annotations

import os
import socket

from grns.postgres.database import Database, Session
from grns.postgres.paging import Page, bad_cursor, cursor, parts
from grns.worker.claims import Claimant

# The pid of an HTTP worker: its process is unknown.
NO_PROCESS = 0
# Agents over HTTP that are known of a workspace; one more replaces the one that has been silent for longest.
MOST_OVER_HTTP = 1000


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
) -> Page:
    """Return the workers that have not said that they ended, by agent type, and whether each lives."""
    agent_type, agent_id = ("", "") if after is None else _place(after)
    rows = await database.run("list_agents", workspace, agent_type, agent_id, limit + 1)
    shown = [dict(row) for row in rows[:limit]]
    more = len(rows) > limit
    return Page(shown, cursor(shown[-1]["agent_type"], shown[-1]["agent_id"]) if more else None)


def _place(said: str) -> tuple[str, str]:
    match parts(said):
        case [agent_type, agent_id]:
            return agent_type, agent_id
    raise bad_cursor(said)
