"""The admitter: queues tasks as their limits allow.

A task that falls under limits waits when it is submitted, and again before each retry. One admitter leads; it
alone queues such tasks, so that it alone must know how many of a key are queued or running. It keeps them in
an `AdmissionBook`, made from the tasks when it begins to lead, and reads in the log which tasks have changed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from grns.errors import UnavailableError
from grns.limits.book import HEADS, AdmissionBook
from grns.limits.key import LimitRule, Tokens
from grns.model import subjects
from grns.nats import JetStream
from grns.outbox.consumer import Applied, LogConsumer, LogCursor
from grns.outbox.log import Span
from grns.postgres.database import Row
from grns.tasks.announce import QueuedTask, announce_queued
from grns.telemetry import failpoint
from grns.telemetry.service_signals import AdmitterBecameLeader, AdmitterStandby, TasksAdmitted

_BATCH = 500  # tasks that one statement queues
_LINES = 100  # lines whose tasks one statement reads
_BUSY_SECONDS, _UNUSED_SECONDS = 0.05, 1.0
_ASK_SECONDS = 1.0  # from one request to workers to tell of ends to the next
_AGAIN_SECONDS = 0.25  # before what another session had locked is tried again
_CLEAN_SECONDS = 60.0
_CLOCK_ERROR_SECONDS = 1.0


@dataclass(slots=True, kw_only=True, eq=False)
class TaskAdmitter(LogConsumer):
    """Leads only while there are limits, or tasks that fall under some."""

    transport: JetStream
    name: str = "admitter"
    tick_seconds: float = _BUSY_SECONDS
    most_rows: int = 2000
    _book: AdmissionBook = field(init=False)
    _queued: list[QueuedTask] = field(default_factory=list, init=False)
    _left: set[str] = field(default_factory=set, init=False)
    _left_until: float = field(default=inf, init=False)
    _asked_at: float = field(default=-_ASK_SECONDS, init=False)
    _clean_at: float = field(default=0.0, init=False)
    _read_at: float = field(default=0.0, init=False)  # when the book's time was read, by the local clock

    async def begin(self) -> None:
        """Subscribe to nudges of ends."""
        await self.transport.on_nudge(subjects.FOLLOW_NUDGE, self.wake)

    async def tick(self) -> float:
        """Follow one batch and admit what may be, if there are limits."""
        if self._cursor is None and not await self._is_used():
            return _UNUSED_SECONDS
        pause = await LogConsumer.tick(self)
        if self._cursor is None:
            return pause
        if self._book.is_empty and not self._book.rules:
            await self._clean()
            await self.end()
            return _UNUSED_SECONDS
        if time.monotonic() >= self._asked_at + _ASK_SECONDS:
            self._asked_at = time.monotonic()
            await self.transport.nudge(subjects.ENDS_NUDGE)
        if time.monotonic() >= self._clean_at:
            await self._clean()
        queued, self._queued = self._queued, []
        if queued:
            await announce_queued(self.transport, queued)
        return 0.0 if self._book.has_work else min(pause, max(0.001, self._opens_in))

    @property
    def has_work(self) -> bool:
        """Whether tasks may be admitted, or are to be read again."""
        if self._left_until <= time.monotonic():
            return True
        return self._book.has_work or self._opens_in <= 0

    @property
    def _opens_in(self) -> float:
        """In how many seconds time alone gives room to a task that waits."""
        return self._book.opens_at - self._book.now - (time.monotonic() - self._read_at)

    async def read_cursor(self) -> LogCursor:
        """Read from where on the log may tell what the tasks do not, and after that all tasks under limits.

        The place is the follower's. It may be far behind: what is read again does no harm.
        """
        (row,) = await self.database.run("read_follow_cursor")
        await self._make_book()
        return LogCursor.of(row)

    async def _make_book(self) -> None:
        rows = await self.database.run("read_limit_tokens")
        self._read_at = time.monotonic()
        self._book = book = AdmissionBook(
            rows[0]["now"],
            tokens={
                # Its time is in the future where the clock of Postgres was set back.
                (row["workspace"], row["key"]): Tokens(row["tokens"], min(row["filled_at"], row["now"]))
                for row in rows
                if row["key"] is not None
            },
        )
        await self._read_rules()
        for row in await self.database.run("read_admitted"):
            book.note(row["id"], row["workspace"], tuple(row["limits"]), row["priority"], row["status"])
        for row in await self.database.run("read_lines"):
            book.note_line(row["workspace"], tuple(row["limits"]))
        self._left, self._left_until = set(), inf

    async def apply(self, cursor: LogCursor, spans: Sequence[Span], after: LogCursor) -> Applied | None:
        """Note how tasks have changed, and queue those that find room."""
        failpoint.reach("admitter.read")
        sent_at, book = time.monotonic(), self._book
        if self._left_until <= sent_at:
            left, self._left, self._left_until = self._left, set(), inf
        else:
            left = set()
        rows = await self.database.run(
            "follow_limits", self.lease.epoch, self.lease.seconds, [span[0] for span in spans],
            [span[1] for span in spans], sum(end - start for start, end in spans), list(left),
        )  # fmt: skip
        if not rows:
            return None
        first = rows[0]
        self.lease.note_renewal(sent_at)
        if first["now"] < book.now - _CLOCK_ERROR_SECONDS:
            raise UnavailableError("the clock of Postgres was set back: all is read again")
        book.now, self._read_at = max(book.now, first["now"]), time.monotonic()
        if first["has_new_rules"]:
            await self._read_rules()
        for row in rows[1:]:
            standing = None if row["id"] in self._left else row["standing"]
            book.note(
                row["id"], row["workspace"], tuple(row["limits"]), row["priority"], standing,
                has_begun=row["has_begun"],
            )  # fmt: skip
            for _ in range(row["repeats"]):
                book.note_repeat(row["id"])
        await self._admit()
        return Applied(first["xid"])

    async def _admit(self) -> None:
        book = self._book
        if lines := book.unread(_LINES):
            heads: list[list[Row]] = [[] for _ in lines]
            for row in await self.database.run(
                "read_heads",
                [line[0] for line in lines],
                [json.dumps(line[1]) for line in lines],
                HEADS,
                list(self._left),
            ):
                heads[row["ordinal"] - 1].append(row)
            for (workspace, keys), found in zip(lines, heads, strict=True):
                first = [(row["priority"], row["id"]) for row in found]
                book.note_heads(workspace, keys, first, but=self._left)
        wanted = book.admit(_BATCH)
        if not wanted:
            return
        tokens = book.tokens_of(wanted)
        failpoint.reach("admitter.planned")
        sent_at = time.monotonic()
        rows = await self.database.run(
            "admit_tasks", self.lease.epoch, self.lease.seconds, wanted, [place[0] for place in tokens],
            [place[1] for place in tokens], [left.number for left in tokens.values()],
            [left.at for left in tokens.values()],
        )  # fmt: skip
        if not rows:
            raise UnavailableError("another one leads now, or Postgres was failed over")
        failpoint.reach("admitter.applied")
        self.lease.note_renewal(sent_at)
        queued = [
            QueuedTask(row["workspace"], row["agent_type"], row["id"])
            for row in rows
            if row["id"] is not None
        ]
        self._queued += queued
        admitted = {task.id for task in queued}
        left = [task_id for task_id in wanted if task_id not in admitted]
        if left:
            book.take_back(left)
            self._left.update(left)
            self._left_until = min(self._left_until, time.monotonic() + _AGAIN_SECONDS)

    async def _is_used(self) -> bool:
        return bool((await self.database.run("read_limit_use"))[0]["is_used"])

    async def _read_rules(self) -> None:
        self._book.set_rules(
            {
                (row["workspace"], row["name"]): LimitRule(
                    inf if row["max_tasks"] is None else row["max_tasks"],
                    inf if row["per_second"] is None else row["per_second"],
                    row["burst"] or 0,
                    row["is_paused"],
                    row["weight"],
                )
                for row in await self.database.run("read_limit_rules")
            }
        )

    async def _clean(self) -> None:
        self._clean_at = time.monotonic() + _CLEAN_SECONDS
        self._book.forget_idle()
        await self.database.run("forget_limit_tokens", self.lease.epoch)

    def note_leading(self, low: int) -> None:
        """Tell that this one admits tasks now."""
        self.emit(AdmitterBecameLeader(self.lease.epoch, low))

    def note_standby(self, reason: str) -> None:
        """Tell that this one admits no more."""
        self.emit(AdmitterStandby(reason))

    def note_applied(self, rows: int, low: int, missing: int, applied: Applied) -> None:
        """Tell how many tasks were admitted."""
        if self._queued:
            self.emit(TasksAdmitted(len(self._queued), rows, low))
