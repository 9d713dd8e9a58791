"""The follower: acts on what the event log tells of tasks that others need.

A submission commits what its task needs, a worker commits how a task has ended, and neither looks at the
other: two transactions that commit at the same moment cannot see each other. The follower reads both in the
log, and whichever it reads last, it sees the other one, too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from grns.model import subjects
from grns.model.task import STATUS_AFTER, TERMINAL
from grns.nats import JetStream
from grns.outbox.consumer import Applied, LogConsumer, LogCursor
from grns.outbox.log import Span
from grns.tasks.announce import QueuedTask, announce_queued
from grns.telemetry import failpoint
from grns.telemetry.service_signals import FollowerBecameLeader, FollowerStandby, LogFollowed, WaitsRepaired

_ENDS = [kind for kind, status in STATUS_AFTER.items() if status in TERMINAL]
_MOST_NEEDS = 2000
# Between two readings without a nudge: while tasks wait for others, and while none does.
_BUSY_SECONDS, _IDLE_SECONDS = 0.05, 1.0
# The same while types have follow-ups, and rows at most, because each may be a task with a result.
_FOLLOW_UP_SECONDS, _FOLLOW_UP_ROWS = 0.1, 200
_ASK_SECONDS = 1.0  # from one request to workers to tell of ends to the next
# The sweep: how often, and for how long something must have been left undone.
_SWEEP_SECONDS, _SWEPT_ROWS = 60.0, 1000


@dataclass(frozen=True, slots=True)
class MissedWaits:
    """What the log should have told: ids of tasks that have ended, and of tasks that are decided."""

    ended: Sequence[str] = ()
    decided: Sequence[str] = ()

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.ended) + len(self.decided)


@dataclass(slots=True, kw_only=True, eq=False)
class TaskFollower(LogConsumer):
    """Queues and ends tasks as what they need ends, and submits follow-ups, as it moves the cursor."""

    transport: JetStream
    name: str = "follower"
    tick_seconds: float = _IDLE_SECONDS
    most_rows: int = 2000
    _queued: list[QueuedTask] = field(default_factory=list, init=False)
    _missed: MissedWaits = field(default_factory=MissedWaits, init=False)
    _swept_up_to: str = field(default="", init=False)
    _sweep_at: float = field(default=0.0, init=False)
    _asked_at: float = field(default=-_ASK_SECONDS, init=False)
    _postponed: int = field(default=0, init=False)
    _has_follow_ups: bool = field(default=False, init=False)

    async def begin(self) -> None:
        """Subscribe to nudges of ends, and of tasks that need others."""
        await self.transport.on_nudge(subjects.FOLLOW_NUDGE, self.wake)

    async def tick(self) -> float:
        """Follow one batch, and send hints of what it has queued."""
        pause = await LogConsumer.tick(self)
        if self._cursor is not None and time.monotonic() >= self._sweep_at:
            await self.sweep()
        if self.tick_seconds == _BUSY_SECONDS and time.monotonic() >= self._asked_at + _ASK_SECONDS:
            self._asked_at = time.monotonic()
            await self.transport.nudge(subjects.ENDS_NUDGE)
        queued, self._queued = self._queued, []
        if queued:
            await announce_queued(self.transport, queued)
        return pause

    @property
    def has_work(self) -> bool:
        """Whether tasks are decided that another session had locked, or a sweep has found something."""
        return self._postponed > 0 or self._missed.count > 0

    async def sweep(self, patience_seconds: float = _SWEEP_SECONDS) -> None:
        """Look through one page of what waits for what was missed: the next statement acts on it.

        Nothing is, unless a bug or a hand has changed rows: the alert `GrnsWaitsRepaired` tells of it.
        """
        (row,) = await self.database.run("sweep_waits", self._swept_up_to, _SWEPT_ROWS, patience_seconds)
        is_end = row["seen"] < _SWEPT_ROWS
        self._swept_up_to = "" if is_end else row["last_id"]
        self._sweep_at = time.monotonic() + (_SWEEP_SECONDS if is_end else 1.0)
        self._missed = MissedWaits(row["ended"], row["decided"])
        if self._missed.count:
            self.emit(WaitsRepaired(self._missed.count, [*self._missed.ended, *self._missed.decided][:20]))

    async def read_cursor(self) -> LogCursor:
        """Read how far the log is followed."""
        (row,) = await self.database.run("read_follow_cursor")
        self._note_follow_ups(row["has_follow_ups"])
        return LogCursor.of(row)

    def _note_follow_ups(self, has_follow_ups: bool) -> None:
        self._has_follow_ups = has_follow_ups
        self._batch_size.bound(min(self.most_rows, _FOLLOW_UP_ROWS) if has_follow_ups else self.most_rows)

    async def apply(self, cursor: LogCursor, spans: Sequence[Span], after: LogCursor) -> Applied | None:
        """Act on the rows of these numbers."""
        failpoint.reach("follower.read")
        sent_at = time.monotonic()
        rows = await self.database.run(
            "follow_log", self.lease.epoch, cursor.moves, self.lease.seconds, [span[0] for span in spans],
            [span[1] for span in spans], sum(end - start for start, end in spans), after.low,
            [span[0] for span in after.beyond], [span[1] for span in after.beyond], _ENDS, _MOST_NEEDS,
            self._missed.ended, self._missed.decided,
        )  # fmt: skip
        if not rows:
            return None
        self.lease.note_renewal(sent_at)
        self._queued += [
            QueuedTask(row["workspace"], row["agent_type"], row["id"])
            for row in rows
            if row["id"] is not None
        ]
        self._postponed = rows[0]["postponed"]
        if not rows[0]["has_more"]:
            self._missed = MissedWaits()
        self._note_follow_ups(rows[0]["has_follow_ups"])
        others = _FOLLOW_UP_SECONDS if self._has_follow_ups else _IDLE_SECONDS
        self.tick_seconds = _BUSY_SECONDS if rows[0]["is_needed"] else others
        return Applied(rows[0]["xid"], has_moved=not rows[0]["has_more"])

    def note_leading(self, low: int) -> None:
        """Tell that this one follows now."""
        self._postponed = 1  # there may be some: the first statement tells
        self.emit(FollowerBecameLeader(self.lease.epoch, low))

    def note_standby(self, reason: str) -> None:
        """Tell that this one follows no more."""
        self.emit(FollowerStandby(reason))

    def note_applied(self, rows: int, low: int, missing: int, applied: Applied) -> None:
        """Tell how far it is."""
        self.emit(LogFollowed(rows, low, missing, len(self._queued), self._postponed))
