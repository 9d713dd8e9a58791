"""What the janitor asks: retention, and the partitions of the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grns.errors import UnavailableError
from grns.postgres.database import Database, Row
from grns.postgres.errors import translated

PARTITIONS_AHEAD = 3
# Whoever reads the log locks each of its partitions: as it grows, they do, and not their number.
_PARTITIONS_KEPT = 50


@dataclass(frozen=True, slots=True)
class RetentionPage:
    """One page of a walk over the tasks: where it ended, how many it saw, how many it deleted."""

    last_id: str
    seen: int
    deleted: int


async def delete_tasks(
    database: Database, after: str, limit: int, ended_seconds: float, dead_seconds: float
) -> RetentionPage:
    """Delete ended tasks past their retention from one page of ids."""
    row = (await database.run("delete_tasks", after, limit, ended_seconds, dead_seconds))[0]
    return RetentionPage(row["last_id"] or "", row["seen"], row["deleted"])


async def next_task(database: Database, after: str) -> str | None:
    """Return the id that a page begins with, None behind the last one."""
    task_id: str | None = (await database.run("next_task", after))[0]["id"]
    return task_id


async def delete_processed(database: Database, limit: int, seconds: float) -> int:
    """Forget handled message ids; returns how many."""
    return len(await database.run("delete_processed_messages", limit, seconds))


async def delete_agents(database: Database, limit: int, seconds: float, http_seconds: float) -> int:
    """Forget workers not seen for long, agents over HTTP sooner; returns how many."""
    return len(await database.run("delete_agents", seconds, http_seconds, limit))


async def delete_replays(database: Database, limit: int, seconds: float) -> int:
    """Forget replays that have ended; returns how many."""
    return len(await database.run("delete_replays", limit, seconds))


async def delete_minutes(database: Database, limit: int, seconds: float) -> int:
    """Forget what happened in minutes long past; returns how many."""
    return len(await database.run("delete_minutes", limit, seconds))


async def delete_issue_hours(database: Database, limit: int, seconds: float) -> int:
    """Forget how often issues were seen in hours long past; returns how many."""
    return len(await database.run("delete_issue_hours", limit, seconds))


async def delete_issues(database: Database, limit: int, seconds: float) -> int:
    """Forget issues not seen for long; returns how many."""
    return len(await database.run("delete_issues", limit, seconds))


async def delete_operations(database: Database, limit: int, seconds: float) -> int:
    """Forget operations that have ended; returns how many."""
    return len(await database.run("delete_operations", limit, seconds))


async def delete_deliveries(database: Database, limit: int, seconds: float) -> int:
    """Forget what was sent to webhooks; returns how many deliveries."""
    return len(await database.run("delete_deliveries", limit, seconds))


async def delete_messages(database: Database, limit: int, seconds: float) -> int:
    """Delete rejected messages that were closed long ago; returns how many."""
    return len(await database.run("delete_messages", limit, seconds))


async def expire_messages(database: Database, limit: int, *, max_messages: int, max_bytes: int) -> int:
    """Delete the oldest open messages beyond what a workspace may keep, and log each; returns how many."""
    return len(await database.run("expire_messages", max_messages, max_bytes, limit))


async def delete_webhooks(database: Database, limit: int) -> int:
    """Take away what was sent to a webhook that was deleted, and then itself; returns how many rows."""
    return len(await database.run("delete_webhooks", limit))


async def keep_partitions(database: Database, rows_per_partition: int, retention_seconds: float) -> None:
    """See to enough partitions ahead, and take away those past their retention.

    A new one has `rows_per_partition`, or more where there would be too many of them for a log
    of this length. None goes that is not wholly below the low watermarks of relay and counter.
    """
    partitions = await database.run("read_partitions")
    rows = max(rows_per_partition, _length(partitions) // _PARTITIONS_KEPT)
    for _ in range(PARTITIONS_AHEAD - sum(row["is_ahead"] for row in partitions)):
        await database.run("add_log_partition", rows)
    for row in partitions:
        if row["is_detaching"] or _is_past(row, retention_seconds):
            await _alone(database, row["detach_statement"])
    for row in await database.run("read_orphan_partitions"):
        await _alone(database, row["drop_statement"])


def _length(partitions: Sequence[Row]) -> int:
    """Return how many numbers of the log are kept, from its oldest partition on."""
    return int(partitions[0]["high"] - partitions[0]["lower_seq"]) if partitions else 0


def _is_past(row: Row, retention_seconds: float) -> bool:
    if not row["is_done_with"] or row["is_ahead"]:
        return False
    age: float | None = row["newest_age_seconds"]
    if age is None:  # nothing came of its numbers; once all are given out, nothing can
        return bool(row["upper_seq"] <= row["high"] + 1)
    return age > retention_seconds


async def _alone(database: Database, sql: str) -> None:
    """Run a statement that the server itself has put together, outside any transaction."""
    async with database.connection() as connection:
        try:
            with translated():
                await connection.execute(sql)
        except UnavailableError:
            # Somebody works on that partition; the next round tries again.
            return
