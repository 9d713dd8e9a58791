"""The partitions of the event log: made ahead of it, and taken away past their retention."""

from __future__ import annotations

from collections.abc import Sequence

from grns.archive.events import archive_part
from grns.errors import UnavailableError
from grns.postgres.database import Database, Row
from grns.postgres.errors import translated
from grns.runtime.place import FilePlace

PARTITION_ROWS = 2_000_000
PARTITIONS_AHEAD = 3
# Readers of the log lock each of its partitions: as it grows, they do, and not their number.
_PARTITIONS_KEPT = 50


async def keep_partitions(
    database: Database,
    rows_per_partition: int,
    retention_seconds: float,
    *,
    is_archived: bool = False,
) -> None:
    """Make enough partitions ahead, and take away those past their retention.

    A new one has `rows_per_partition`, or more if there would be too many of them for a log of this
    length. None goes that is not wholly below the low watermarks of relay, stats aggregator, text indexer
    and follower. With an archive one is taken off the log at a time, and left to `archive_partitions`.
    """
    partitions = await database.run("read_partitions")
    rows = max(rows_per_partition, _length(partitions) // _PARTITIONS_KEPT)
    for _ in range(PARTITIONS_AHEAD - sum(row["is_ahead"] for row in partitions)):
        await database.run("add_log_partition", rows)
    for row in partitions:
        if is_archived and await database.run("read_orphan_partitions"):
            return  # its events are in no list until they are archived: not more of them than of one
        if row["is_detaching"] or _is_past(row, retention_seconds):
            await _alone(database, row["detach_statement"])
    if not is_archived:
        await _drop_orphans(database)


async def archive_partitions(database: Database, archive: FilePlace) -> bool:
    """Archive the next part of what was taken off the log, and drop what is; True if more is left."""
    for row in await database.run("read_orphan_partitions"):
        if await archive_part(database, archive, row["name"]):
            return True
        await _alone(database, row["drop_statement"])
    return False


async def _drop_orphans(database: Database) -> None:
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
            # Another session works on that partition; the next round tries again.
            return
