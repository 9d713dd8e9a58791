"""The log as the counter reads it, the counter's cursor, and what was counted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from grns.errors import InvalidInputError
from grns.model.task import LETTERS, STATUS_AFTER, TaskStatus
from grns.outbox.consumer import Applied, LogCursor
from grns.outbox.log import Span
from grns.postgres.database import Database, Session
from grns.runtime.leader import LeaderLease

_MOST_STEPS = 2000


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Counts of one time step that starts at `at`. Each sum covers as many values as the count next to it.

    `queue_ms_sum` has the time in the queue of claims, `run_ms_sum` the time of attempts that ended by
    themselves.
    """

    at: datetime
    submitted: int
    claimed: int
    succeeded: int
    failed: int
    dead: int
    cancelled: int
    retried: int
    expired: int
    released: int
    redriven: int
    queue_count: int
    queue_ms_sum: int
    run_count: int
    run_ms_sum: int


async def read_cursor(database: Database) -> LogCursor:
    """Read how far the log is counted; a leader does once it holds the lease."""
    (row,) = await database.run("read_stats_cursor")
    return LogCursor.of(row)


async def count(
    database: Database, lease: LeaderLease, cursor: LogCursor, spans: Sequence[Span], after: LogCursor
) -> Applied | None:
    """Count the rows of these numbers, move the cursor and renew the lease, all at once.

    None, and nothing done, if another aggregator leads, the cursor has moved, or some of these rows are gone.
    """
    sent_at = time.monotonic()
    rows = await database.run(
        "count_log", lease.epoch, cursor.moves, lease.seconds, [span[0] for span in spans],
        [span[1] for span in spans], sum(end - start for start, end in spans), after.low,
        [span[0] for span in after.beyond], [span[1] for span in after.beyond], *_TABLE,
    )  # fmt: skip
    if not rows:
        return None
    lease.note_renewal(sent_at)
    return Applied(rows[0]["xid"], max(0.0, rows[0]["age_seconds"] or 0.0))


async def count_states(database: Database | Session, *, workspace: str) -> dict[str, int]:
    """Return how many tasks are in each state, as far as the log is counted; it reads no task."""
    counts = dict.fromkeys((status.value for status in TaskStatus), 0)
    return counts | {row["status"]: row["count"] for row in await database.run("count_states", workspace)}


async def read_minutes(
    database: Database | Session,
    *,
    workspace: str,
    since: datetime,
    until: datetime,
    step_seconds: int = 60,
    task_type: str | None = None,
) -> list[StepCounts]:
    """Return the counts of each time step between two times, of one task type or of all.

    Steps in which nothing happened are left out. Raises `InvalidInputError` for too many steps.
    """
    if step_seconds < 60 or (until - since).total_seconds() > _MOST_STEPS * step_seconds:
        raise InvalidInputError(
            "bad_step", f"a step is a minute at least, and of these there are {_MOST_STEPS} at most"
        )
    return await database.fetch(StepCounts, "read_minutes", workspace, since, until, step_seconds, task_type)


# Where events lead, and what the letters in the log mean, as the statement takes them.
_TABLE = (
    list(STATUS_AFTER),
    [status.value for status in STATUS_AFTER.values()],
    list(LETTERS.values()),
    [status.value for status in LETTERS],
)
