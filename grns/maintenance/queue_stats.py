"""What a glance at Postgres shows, without a look at all of anything: what is counted, what is oldest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grns.postgres.database import Database

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


async def queue_ages(database: Database) -> Sequence[QueueAge]:
    """Return the priority subjects that have tasks or live workers."""
    return [
        QueueAge(
            row["workspace"], row["agent_type"], row["priority"], row["oldest_seconds"],
            dict(zip(row["unserved"], row["unserved_after_seconds"], strict=True)),
        )
        for row in await database.run("read_queue_ages", _MOST_POOLS, _FRONT)
    ]  # fmt: skip


async def states(database: Database) -> Sequence[tuple[str, str, int]]:
    """Return workspace, state and number of tasks, as far as the log is counted."""
    return [tuple(row) for row in await database.run("count_all_states")]


async def lags(database: Database) -> Lags:
    """Return what has waited for the daemons, whether they run or not."""
    return Lags(*(await database.run("read_lags"))[0])


async def agents(database: Database) -> Sequence[tuple[str, str, str, int]]:
    """Return workspace, agent type, health and number of agents with a name."""
    return [tuple(row) for row in await database.run("count_agents")]


async def pool_capacities(database: Database) -> Sequence[PoolCapacity]:
    """Return the pools that have live workers."""
    return [PoolCapacity(*row) for row in await database.run("count_workers")]
