"""The workers that are known."""

from __future__ import annotations

import os
import socket

from grns.store.claim import Claimant
from grns.store.database import Database


async def register(database: Database, claimant: Claimant, *, concurrency: int, version: str) -> None:
    """Make a worker known."""
    await database.run(
        "register_agent", claimant.agent_id, claimant.workspace, claimant.agent_type, socket.gethostname(),
        os.getpid(), version, concurrency, sorted(claimant.handled), claimant.lease_seconds,
    )  # fmt: skip


async def touch(database: Database, agent_id: str, *, idle_seconds: float, running: int = 0) -> None:
    """Note that a worker lives, how long it has had room and taken nothing, and how many tasks it runs."""
    await database.run("touch_agent", agent_id, idle_seconds, running)


async def stop(database: Database, agent_id: str) -> None:
    """Note that a worker has ended in order."""
    await database.run("stop_agent", agent_id)
