"""What a glance at Postgres shows, without a look at all of anything: what is counted, what is oldest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from grns.maintenance.scan_window import ScanPlaces
from grns.postgres.database import Database, Row

# Agent types at most; of each priority subject the front is enough, see the statement.
_MOST_POOLS = 1000
_FRONT = 100


@dataclass(frozen=True, slots=True)
class QueueAge:
    """The tasks of one pool and priority: for how long the oldest has been queued (0: there is none), and the
    oldest of each task type among the first that no live worker has a handler for."""

    workspace: str
    agent_type: str
    priority: int
    oldest_seconds: float
    unserved_after_seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Lags:
    """For how long the oldest has waited that should have gone on, in seconds; 0 where nothing waits."""

    due_seconds: float
    undecided_seconds: float
    lapsed_seconds: float
    unpublished_seconds: float
    uncounted_seconds: float
    unfollowed_seconds: float
    unadmitted_seconds: float
    unseen_seconds: float


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """The live workers of a pool: how many, their slots, and what they ran at their last heartbeats."""

    workspace: str
    agent_type: str
    workers: int
    slots: int
    running: int


async def queue_ages(
    database: Database, scan: ScanPlaces[tuple[str, str]] | None = None
) -> Sequence[QueueAge]:
    """Return the priority subjects that have tasks or live workers.

    `scan` remembers by workspace and agent type where the last reading found the first task.
    """
    scan = ScanPlaces() if scan is None else scan
    places = scan.places()
    rows = await database.run(
        "read_queue_ages", _MOST_POOLS, _FRONT,
        [workspace for workspace, _ in places], [agent_type for _, agent_type in places],
        list(places.values()),
    )  # fmt: skip
    pools: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        pools.setdefault((row["workspace"], row["agent_type"]), []).append(row)
    ages: list[QueueAge] = []
    firsts: dict[tuple[str, str], datetime | None] = {}
    for pool, priorities in pools.items():
        queued_ats = [row["oldest_at"] for row in priorities if row["oldest_at"] is not None]
        firsts[pool] = min(queued_ats, default=None)
        if queued_ats or priorities[0]["is_served"]:
            ages += [
                QueueAge(
                    *pool, row["priority"], _seconds_since(row["oldest_at"], row["read_at"]),
                    dict(zip(row["unserved"], row["unserved_after_seconds"], strict=True)),
                )
                for row in priorities
            ]  # fmt: skip
    if rows:
        scan.note(firsts, rows[0]["read_at"])
    return ages


async def states(database: Database) -> Sequence[tuple[str, str, int]]:
    """Return workspace, state and number of tasks, as far as the log is counted."""
    return [tuple(row) for row in await database.run("count_all_states")]


async def lags(database: Database, scan: ScanPlaces[str] | None = None) -> Lags:
    """Return what has waited for the daemons, whether they run or not.

    `scan` remembers where the last reading found the first task that is due, and the first lease that is
    over.
    """
    scan = ScanPlaces() if scan is None else scan
    places = scan.places()
    row = dict((await database.run("read_lags", places.get("due_at"), places.get("lapsed_at")))[0])
    read_at = row.pop("read_at")
    firsts = {name: row.pop(name) for name in ("due_at", "lapsed_at")}
    scan.note(firsts, read_at)
    due_seconds, lapsed_seconds = (_seconds_since(first, read_at) for first in firsts.values())
    return Lags(due_seconds=due_seconds, lapsed_seconds=lapsed_seconds, **row)


def _seconds_since(first: datetime | None, now: datetime) -> float:
    return 0.0 if first is None else (now - first).total_seconds()


async def agents(database: Database) -> Sequence[tuple[str, str, str, int]]:
    """Return workspace, agent type, health and number of agents with a name."""
    return [tuple(row) for row in await database.run("count_agents")]


async def pool_capacities(database: Database) -> Sequence[PoolCapacity]:
    """Return the pools that have live workers."""
    return [PoolCapacity(*row) for row in await database.run("count_workers")]
