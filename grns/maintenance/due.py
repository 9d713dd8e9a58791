"""What the reaper and the retry scheduler ask: batches of tasks whose time has come."""

from __future__ import annotations

from collections.abc import Sequence

from grns.postgres.database import Database, Row


async def tick_reaper(
    database: Database, lease_seconds: float, tick_seconds: float, http_lease_seconds: float = 60.0
) -> bool:
    """Note that a reaper lives; True while reapers must hold still after an outage.

    `http_lease_seconds` is the lease that agents over HTTP have unless they ask for another one.
    """
    rows = await database.run("tick_reaper", lease_seconds, tick_seconds, http_lease_seconds)
    return bool(rows[0]["is_holding"])


async def reap(database: Database, limit: int, scan_window_seconds: float | None) -> Sequence[Row]:
    """Take back tasks whose lease is over: rows of id, status, agent_id, attempt, was_until.

    None during a hold, and none where the latest tick is older than an outage may be.
    """
    return await database.run("reap", limit, scan_window_seconds)


async def promote(database: Database, limit: int, scan_window_seconds: float | None) -> Sequence[Row]:
    """Queue tasks that are due: rows of id, was_due_at, queued_reason."""
    return await database.run("promote", limit, scan_window_seconds)
