"""The traces that daemons leave in the database."""

from __future__ import annotations

from grns.model.daemon_status import DaemonStatus
from grns.postgres.database import Database


async def read_pulse(database: Database, seq: int | None = None) -> DaemonStatus:
    """Return how the daemons are; `is_published` is of the row of the log that has this number."""
    (row,) = await database.run("read_pulse", seq)
    return DaemonStatus(**row)
