"""The scheduler: submits the tasks of schedules when they are due.

Any number of schedulers may run. One transaction locks what is due, decides about it, submits the tasks,
writes down each decision and sets the next times: each time is decided once, or not yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from grns.errors import InvalidInputError
from grns.model.json import Limits
from grns.model.submission import Need, submission
from grns.model.task import TERMINAL
from grns.nats import JetStream
from grns.postgres import audit_log
from grns.postgres.database import Connection, Database, Row, run
from grns.runtime.service import PeriodicService
from grns.schedules.model import RunOutcome, Schedule
from grns.schedules.service import schedule_of
from grns.schedules.ticks import due
from grns.tasks.announce import announce
from grns.tasks.submit import Prepared, Submitted, answers, call, prepare
from grns.telemetry.service_signals import SchedulePaused, SchedulesDecided

_BATCH = 50
_ACTOR = "schedule"


@dataclass(slots=True)
class Decision:
    """What becomes of one time that is due."""

    schedule: Schedule
    due_at: datetime
    outcome: RunOutcome
    reason: str | None = None
    task_id: str | None = None
    missed: int | None = None
    prepared: Prepared | None = None


@dataclass(slots=True)
class DueSchedule:
    """A schedule that is due, and how its last task is."""

    schedule: Schedule
    now: datetime
    last_status: str | None
    last_waits_for: str | None
    next_at: datetime | None = None

    @classmethod
    def of(cls, row: Row) -> DueSchedule:
        """Return the row as one."""
        return cls(schedule_of(row), row["now"], row["last_status"], row["last_waits_for"])

    def decide(self, limits: Limits) -> list[Decision]:
        """Return what becomes of each time that is due, and set the next one.

        Raises InvalidInputError if its rhythm or its task cannot be.
        """
        one = self.schedule
        found = due(
            one.rhythm, one.next_at, self.now, catch_up=one.catch_up, window_seconds=one.window_seconds
        )
        self.next_at = found.next_at
        decisions = []
        if found.missed is not None:
            decisions.append(Decision(one, found.missed.last_at, "missed", "late", missed=found.missed.count))
        before, is_running = one.last_task_id, self.last_status not in (None, *TERMINAL)
        is_waiting = self.last_waits_for == "tasks"
        for due_at in found.submit:
            if is_running and (one.overlap == "skip" or (one.overlap == "queue_one" and is_waiting)):
                decisions.append(Decision(one, due_at, "skipped", "overlap", before))
                continue
            needs = [before] if is_running and one.overlap == "queue_one" and before is not None else []
            prepared = _prepare(one, due_at, needs, limits)
            decisions.append(Decision(one, due_at, "submitted", task_id=prepared.id, prepared=prepared))
            before, is_running, is_waiting = prepared.id, True, bool(needs)
        return decisions


def _prepare(schedule: Schedule, due_at: datetime, needs: Sequence[str], limits: Limits) -> Prepared:
    fields = submission(
        task_type=schedule.task_type,
        agent_type=schedule.agent_type,
        workspace=schedule.workspace,
        payload=schedule.payload,
        priority=schedule.priority,
        max_attempts=schedule.max_attempts,
        idempotency_key=f"schedule/{schedule.name}/{due_at:%Y-%m-%dT%H:%M:%S.%fZ}",
        needs=tuple(Need(task=one, outcome="end") for one in needs),
    )
    return prepare(fields, limits)


@dataclass(slots=True, kw_only=True, eq=False)
class Scheduler(PeriodicService):
    """Decides in batches."""

    database: Database
    transport: JetStream
    limits: Limits
    name: str = "scheduler"
    tick_seconds: float = 0.5
    _paused: list[tuple[Schedule, str]] = field(default_factory=list, init=False)

    async def tick(self) -> float:
        """Decide about one batch of schedules that are due."""
        async with self.database.transaction() as connection:
            found = [DueSchedule.of(row) for row in await run(connection, "due_schedules", _BATCH)]
            decisions = await self._decide(connection, found) if found else []
        paused, self._paused = self._paused, []
        for schedule, reason in paused:
            self.emit(SchedulePaused(schedule.workspace, schedule.name, reason))
        if decisions:
            submitted = [one.prepared for one in decisions if one.prepared is not None]
            lateness = max((one.now - one.schedule.next_at).total_seconds() for one in found)
            outcomes = Counter[str](one.outcome for one in decisions)
            self.emit(SchedulesDecided(outcomes, lateness))
            await announce(self.transport, submitted)
        return 0.0 if len(found) == _BATCH else self.tick_seconds

    async def _decide(self, connection: Connection, found: Sequence[DueSchedule]) -> list[Decision]:
        decisions: list[Decision] = []
        for one in found:
            try:
                decisions += one.decide(self.limits)
            except InvalidInputError as error:
                await self._pause_schedule(connection, one.schedule, str(error))
        await _submit(connection, decisions)
        await _note(connection, decisions, [one for one in found if one.next_at is not None])
        return decisions

    async def _pause_schedule(self, connection: Connection, schedule: Schedule, reason: str) -> None:
        """Pause what cannot be decided, as a schedule in a time zone that this machine does not know."""
        reason = reason[:500]
        await run(connection, "pause_schedule", schedule.workspace, schedule.name, "grns", reason)
        payload = {
            "schedule": schedule.name, "when": schedule.when, "task_type": schedule.task_type,
            "agent_type": schedule.agent_type, "reason": reason,
        }  # fmt: skip
        await audit_log.note(
            connection, workspace=schedule.workspace, kind="evt.schedule.paused", actor=None, payload=payload
        )
        self._paused.append((schedule, reason))


async def _submit(connection: Connection, decisions: Sequence[Decision]) -> None:
    """Submit the tasks. A key that another task has makes a decision `skipped`."""
    wanted = [one for one in decisions if one.prepared is not None]
    alone = [[one] for one in wanted if one.prepared is not None and one.prepared.submission.needs]
    together = [one for one in wanted if one.prepared is not None and not one.prepared.submission.needs]
    for batch in [together, *alone] if together else alone:
        prepared = [one.prepared for one in batch if one.prepared is not None]
        statement, arguments = call(prepared, _ACTOR)
        for one, answer in zip(
            batch, answers(prepared, await run(connection, statement, *arguments)), strict=True
        ):
            if isinstance(answer, Submitted):
                one.task_id = answer.id
            else:
                one.outcome, one.reason, one.task_id, one.prepared = "skipped", "key_taken", None, None


async def _note(connection: Connection, decisions: Sequence[Decision], found: Sequence[DueSchedule]) -> None:
    """Write down the decisions, with an event for each, and the next times."""
    last = {
        (one.schedule.workspace, one.schedule.name): one for one in decisions if one.outcome == "submitted"
    }
    lasts = [last.get((one.schedule.workspace, one.schedule.name)) for one in found]
    await run(
        connection, "note_runs",
        [one.schedule.workspace for one in decisions], [one.schedule.name for one in decisions],
        [one.due_at for one in decisions], [one.outcome for one in decisions],
        [one.reason for one in decisions], [one.task_id for one in decisions],
        [one.missed for one in decisions],
        [one.schedule.workspace for one in found], [one.schedule.name for one in found],
        [one.next_at for one in found], [one and one.due_at for one in lasts],
        [one and one.task_id for one in lasts],
    )  # fmt: skip
    for one in decisions:
        payload: dict[str, Any] = {
            "schedule": one.schedule.name, "due_at": one.due_at, "task_type": one.schedule.task_type,
            "agent_type": one.schedule.agent_type, "task_id": one.task_id, "reason": one.reason,
            "missed": one.missed,
        }  # fmt: skip
        await audit_log.note(
            connection, workspace=one.schedule.workspace, kind=f"evt.schedule.{one.outcome}", actor=None,
            payload=payload,
        )  # fmt: skip
