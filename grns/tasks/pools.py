"""The current state of pools: workers, queued tasks and pauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grns.postgres.database import Database, Row, Session
from grns.postgres.paging import Page
from grns.tasks import pauses as pause
from grns.tasks.pauses import Pause

_MOST_COUNTED = 1000


@dataclass(frozen=True, slots=True)
class PriorityBacklog:
    """The queued tasks of one priority.

    If `has_more` is true, there are more: at most a thousand are counted.
    """

    priority: int
    queued: int
    has_more: bool
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True)
class PoolState:
    """A pool. `slots` and `running` are as of its workers' last heartbeats."""

    workspace: str
    agent_type: str
    workers: int
    slots: int
    running: int
    queued: int
    has_more: bool
    oldest_seconds: float | None
    priorities: list[PriorityBacklog]
    pauses: list[Pause]


async def list_pools(
    database: Database | Session, *, workspace: str, limit: int = 50, after: str | None = None
) -> Page[PoolState]:
    """Return the pools with workers, queued tasks or a pause, by name."""
    rows = await database.run("read_agent_types", workspace, after or "", limit + 1)
    agent_types = [row["agent_type"] for row in rows]
    shown = agent_types[:limit]
    pools = await read_pools(database, workspace, shown)
    return Page(pools, shown[-1] if len(agent_types) > limit else None)


async def read_pools(
    database: Database | Session, workspace: str, agent_types: Sequence[str]
) -> list[PoolState]:
    """Return pools by their agent types, in that order, also unknown ones."""
    rows = await database.run("read_pools", workspace, list(agent_types), _MOST_COUNTED + 1)
    pauses = await pause.in_force(database, workspace, agent_types)
    return [
        _pool(workspace, row, [one for one in pauses if one.agent_type == row["agent_type"]]) for row in rows
    ]


def _pool(workspace: str, row: Row, pauses: list[Pause]) -> PoolState:
    priorities = [
        PriorityBacklog(priority, min(queued, _MOST_COUNTED), queued > _MOST_COUNTED, oldest_seconds)
        for priority, (queued, oldest_seconds) in enumerate(
            zip(row["queued"], row["oldest_seconds"], strict=True)
        )
    ]
    ages = [one.oldest_seconds for one in priorities if one.oldest_seconds is not None]
    return PoolState(
        workspace=workspace,
        agent_type=row["agent_type"],
        workers=row["workers"],
        slots=row["slots"],
        running=row["running"],
        queued=sum(one.queued for one in priorities),
        has_more=any(one.has_more for one in priorities),
        oldest_seconds=max(ages, default=None),
        priorities=priorities,
        pauses=pauses,
    )
