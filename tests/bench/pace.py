"""When tasks were claimed and finished, by Postgres' own clock, and how fast that was.

The log has these times (`clock_timestamp()`, within the statement that claims or finishes). So neither the
start of a process counts nor how often somebody looks; only the very last commit is left out, some
milliseconds of a whole run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from grns.postgres.database import Connection
from tests.bench.figure import Curve

_BEGAN = """
    select extract(epoch from min(e.created_at))::float8 from grns.events e
    where e.seq > $1 and e.kind = 'evt.task.claimed'
"""
_BATCH = """
    select coalesce(count(*)::float8 / nullif(count(distinct e.xmin::text), 0), 0) from grns.events e
    where e.seq > $1 and e.kind = $2
"""
_FINISHES = """
    select extract(epoch from e.created_at)::float8 as at from grns.events e
    where e.seq > $1 and e.kind = 'evt.task.completed'
    order by e.created_at
"""


@dataclass(frozen=True)
class Pace:
    """When the first task was claimed, and when each one was finished, in order: seconds of one clock."""

    began: float
    finishes: list[float]
    batch: float = 0.0  # tasks that one statement claims, on average
    finish_batch: float = 0.0  # tasks that one statement finishes

    def rate(self, count: int | None = None) -> float:
        """Return tasks/s from the first claim to the last finish, or to the finish of so many."""
        finishes = self.finishes[:count]
        return len(finishes) / (finishes[-1] - self.began)

    def rate_between(self, low: float, high: float) -> float:
        """Return tasks/s of a part of the finishes, from one share of them to another (0 to 1)."""
        first, last = (min(int(share * len(self.finishes)), len(self.finishes) - 1) for share in (low, high))
        return (last - first) / (self.finishes[last] - self.finishes[first])

    def curve(self, step_seconds: float) -> Curve:
        """Return tasks/s in each step since the first claim; the last one, cut short, is left out."""
        steps = Counter(int((at - self.began) / step_seconds) for at in self.finishes)
        return [(place * step_seconds, steps[place] / step_seconds) for place in range(max(steps, default=0))]


async def read_pace(connection: Connection, after_seq: int = 0) -> Pace:
    """Read it from the log, of all that was written after a row of it."""
    began = await connection.fetchval(_BEGAN, after_seq)
    finishes = [row["at"] for row in await connection.fetch(_FINISHES, after_seq)]
    claimed, completed = [
        await connection.fetchval(_BATCH, after_seq, f"evt.task.{end}") for end in ("claimed", "completed")
    ]
    return Pace(began, finishes, claimed, completed)
