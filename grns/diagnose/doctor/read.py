"""Queries of the doctor."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime

from grns.access import isolation as access
from grns.diagnose.doctor.snapshot import ClockSkew, Log, Partition, Postgres, Schema, Unserved, WorkerStats
from grns.maintenance.audit import audit_now
from grns.postgres import migrate
from grns.postgres.database import Database
from grns.schedules.service import list_orphans

_LOOKS = 5
_MOST_POOLS = 1000
_MOST_PER_PRIORITY = 100


async def read_server(database: Database) -> Postgres:
    """Return the version and settings of the server."""
    (row,) = await database.run("read_server")
    return Postgres(**row)


async def read_schema(database: Database) -> Schema:
    """Return the revision of the schema, and its isolation and limits if it is the needed one."""
    needed, found = migrate.newest(), await migrate.current(database.url)
    if found != needed:
        return Schema(found, needed)
    isolation = await access.read_isolation(database)
    (limit,) = await database.run("read_payload_bytes")
    return Schema(found, needed, isolation.obstacle, isolation.is_relied_on, limit["bytes"])


async def read_log(database: Database) -> Log:
    """Return the partitions of the event log."""
    rows = await database.run("read_partitions")
    partitions = [
        Partition(
            name=row["name"],
            lower_seq=row["lower_seq"],
            upper_seq=row["upper_seq"],
            is_ahead=row["is_ahead"],
            is_done_with=row["is_done_with"],
            is_detaching=row["is_detaching"],
            newest_seconds=row["newest_age_seconds"],
        )
        for row in rows
    ]
    orphans = await database.run("read_orphan_partitions")
    return Log(partitions, rows[0]["high"] if rows else 0, len(orphans))


async def read_stuck(database: Database, stuck_after_seconds: float) -> dict[str, int]:
    """Return the number of stuck tasks and events by invariant, at most a thousand each."""
    return dict(Counter(one.invariant for one in await audit_now(database, stuck_after_seconds)))


async def read_crews(database: Database) -> list[WorkerStats]:
    """Return the workers of all pools of all workspaces."""
    return [WorkerStats(**row) for row in await database.run("read_crews")]


async def read_unserved(database: Database, workspace: str) -> list[Unserved]:
    """Return queued task types without a live worker, the longest waiting first."""
    pools = [row["agent_type"] for row in await database.run("read_agent_types", workspace, "", _MOST_POOLS)]
    return [
        Unserved(**row) for row in await database.run("read_unserved", workspace, pools, _MOST_PER_PRIORITY)
    ]


async def read_orphans(database: Database, workspace: str) -> list[tuple[str, str]]:
    """Return the schedules that no live worker declares any more, each with its pool."""
    return [(one.name, one.agent_type) for one in await list_orphans(database, workspace=workspace)]


async def read_clock(database: Database) -> datetime:
    """Return the time of the server."""
    (row,) = await database.run("read_clock")
    instant: datetime = row["at"]
    return instant


async def compare_clock(name: str, read: Callable[[], Awaitable[datetime]]) -> ClockSkew:
    """Return the difference of a clock to this machine's, by the fastest of a few readings."""
    best: ClockSkew | None = None
    for _ in range(_LOOKS):
        before = time.time()
        theirs = (await read()).timestamp()
        after = time.time()
        found = ClockSkew(name, theirs - (before + after) / 2, (after - before) / 2)
        if best is None or found.error_seconds < best.error_seconds:
            best = found
    assert best is not None  # noqa: S101 - there was a reading
    return best
