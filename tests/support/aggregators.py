"""What tests of the counter share: counting to the end of the log, and what the tables hold then."""

from __future__ import annotations

from typing import Any

from grns.postgres.database import Database
from grns.runtime.leader import LeaderLease
from grns.stats.aggregator import StatsAggregator
from tests.support.store import fetch

Counts = dict[tuple[str, str, str], int]

_COUNTED = "select workspace, task_type, status, count as n from grns.task_counts where count <> 0"
_THERE = "select workspace, task_type, status, count(*) as n from grns.tasks group by 1, 2, 3"


async def begin_here(database: Database) -> None:
    """Let everything in the log so far be counted: what tests before have left is none of ours."""
    await fetch(database, "update grns.count_cursor set low = nextval('grns.events_seq'), counted = '{}'")


async def lead(database: Database, owner: str = "test") -> StatsAggregator:
    """Take the lead, whoever has it."""
    aggregator = StatsAggregator(
        database=database, lease=LeaderLease("stats", owner, 60.0), emit=lambda _: None
    )
    while not await aggregator.lead():
        await fetch(database, "update grns.leases set until = '-infinity' where name = 'stats'")
    return aggregator


async def count_all(database: Database, rows: int = 5000) -> StatsAggregator:
    """Count to the end of the log, so many rows at a time; also what counting itself has written there."""
    leading = await lead(database)
    for _ in range(2):
        while await leading.step(rows):
            pass
    return leading


async def counted(database: Database) -> Counts:
    """Return how many tasks are where, as they were counted."""
    return _by_state(await fetch(database, _COUNTED))


async def there(database: Database) -> Counts:
    """Return how many tasks are where, as their rows say."""
    return _by_state(await fetch(database, _THERE))


def _by_state(rows: list[Any]) -> Counts:
    return {(row["workspace"], row["task_type"], row["status"]): row["n"] for row in rows}
