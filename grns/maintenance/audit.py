"""What `grns admin verify` asks: whether what Postgres holds could have come about as it should."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from grns.model.task import STATUS_AFTER, TERMINAL, TRANSITIONS, Transition
from grns.postgres.database import Database, Row

# A decision about a time of a schedule: workspace, name, time and source.
RunPlace = tuple[str, str, datetime, str]
FIRST_RUN: RunPlace = ("", "", datetime.min.replace(tzinfo=UTC), "")
Place = TypeVar("Place", str, int, RunPlace)

# By name: what a finding says has been violated.
INVARIANTS = {
    "replay": "the events of a task tell its status",
    "missing_event": "one event for each version of a task",
    "transition": "a task goes only where the table lets it",
    "terminal_is_final": "what has ended stays so, but for a redrive",
    "order": "the events of a task are numbered in their order",
    "missing_message": "a transition sends its command, its dead letter",
    "attempts": "attempts are counted, and bounded",
    "owner": "who claimed a task runs it",
    "lost_task": "no task goes before it has ended",
    "message_id": "no two messages that stand near each other have one id",
    "schedule_run": "a time of a schedule has one task, which is its own",
    "undelivered": "what is queued is taken by workers that have room",
    "unreaped": "what has lost its worker is taken back",
    "unpromoted": "what is due is queued",
    "unrelayed": "what is logged is published",
    "unfollowed": "what waits for tasks waits for some that have not ended",
    "unadmitted": "what waits for room in its limits has an admitter",
    "over_limit": "no more tasks of a key are queued or running than its limit allows",
}
# Those that ask what should have gone on by now; the others ask what has been written.
OF_NOW = ("undelivered", "unreaped", "unpromoted", "unrelayed", "unfollowed", "unadmitted", "over_limit")
_MOST_LATE = 1000
# Commands may be lost; fallback polling, which finds their tasks, pauses for 10 s at most.
_IDLE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Violation:
    """One violated invariant (a key of `INVARIANTS`), and the task that shows it, if it is one's."""

    invariant: str
    task_id: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class AuditPage(Generic[Place]):
    """What one page held: how many rows it had, the place of the last one, and what was found."""

    seen: int
    last: Place
    findings: Sequence[Violation]


async def audit_tasks(database: Database, after: str, limit: int) -> AuditPage[str]:
    """Hold up to `limit` tasks, from the id `after` on, against their events."""
    rows = await database.run("audit_tasks", after, limit, *_TABLE)
    return AuditPage(rows[0]["seen"], rows[0]["last_id"] or after, _findings(rows))


async def audit_log(database: Database, after: int, limit: int) -> AuditPage[int]:
    """Look at up to `limit` rows of the log, from the number `after` on."""
    rows = await database.run("audit_log", after, limit, list(STATUS_AFTER), _ENDS)
    return AuditPage(rows[0]["seen"], rows[0]["last_seq"] or after, _findings(rows))


async def audit_schedules(database: Database, after: RunPlace, limit: int) -> AuditPage[RunPlace]:
    """Check up to `limit` decisions of schedules, from the one `after` on, against their tasks."""
    rows = await database.run("audit_schedules", *after, limit)
    first = rows[0]
    last = (first["workspace"], first["name"], first["due_at"], first["source"]) if first["seen"] else after
    return AuditPage(first["seen"], last, _findings(rows))


async def audit_now(database: Database, stuck_after_seconds: float) -> list[Violation]:
    """Find what should have gone on for `stuck_after_seconds`, the oldest thousand of each kind."""
    return _findings(await database.run("audit_now", stuck_after_seconds, _MOST_LATE, _IDLE_SECONDS))


def _findings(rows: Sequence[Row]) -> list[Violation]:
    return [Violation(row["invariant"], row["task_id"], row["detail"]) for row in rows if row["invariant"]]


def _step(line: Transition) -> str:
    return f"{line.source or 'none'}>{line.target}>{line.event}"


# The table of transitions, as the statements take it.
_TABLE = (
    list(STATUS_AFTER),
    [status.value for status in STATUS_AFTER.values()],
    sorted({_step(line) for line in TRANSITIONS}),
    sorted({_step(line) for line in TRANSITIONS if line.command}),
    sorted({_step(line) for line in TRANSITIONS if line.dead_letter}),
)
_ENDS = [event for event, status in STATUS_AFTER.items() if status in TERMINAL]
