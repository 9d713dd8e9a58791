"""Failovers of Postgres: that there was one, and which of the published messages its log does not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from grns.postgres.database import Database


@dataclass(frozen=True, slots=True)
class Failover:
    """Another server than before: another timeline, or another cluster altogether.

    `last_seen_at` is when the one before was seen last, as far as this one knows: what was lost is younger.
    One that is not stored yet has no `id`.
    """

    id: int | None
    noticed_at: datetime
    last_seen_at: datetime
    old_system_identifier: str
    old_timeline: int
    new_system_identifier: str
    new_timeline: int

    @property
    def is_same_cluster(self) -> bool:
        """Say whether it is the same cluster, continued: a standby that was promoted, a restore in time."""
        return self.old_system_identifier == self.new_system_identifier


@dataclass(frozen=True, slots=True)
class Unlogged:
    """One message that the log does not have, by its place among those asked for; and where its task is."""

    place: int
    status: str | None


async def note_server(database: Database) -> Failover | None:
    """Store which server this is; return the failover to the first process that notices one."""
    rows = await database.run("note_server")
    return Failover(*rows[0]) if rows else None


async def unnoted_failover(database: Database) -> Failover | None:
    """Return the failover that is not stored yet, if this is another server; only read."""
    rows = await database.run("read_unnoted_failover")
    return Failover(*rows[0]) if rows else None


async def failovers(database: Database, after: int) -> list[Failover]:
    """Return the failovers with higher numbers than `after`, oldest first."""
    return [Failover(*row) for row in await database.run("read_failovers", after)]


async def unlogged(
    database: Database, seqs: Sequence[int], message_ids: Sequence[UUID], task_ids: Sequence[str | None]
) -> list[Unlogged]:
    """Return which of these messages, told by number and id, are not in the log."""
    rows = await database.run("find_unlogged", list(seqs), list(message_ids), list(task_ids))
    return [Unlogged(row["place"] - 1, row["status"]) for row in rows]
