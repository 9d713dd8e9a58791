"""The scheduler: submits the tasks of schedules when they are due.

Any number of schedulers may run. One transaction locks what is due, decides about it, submits the tasks,
writes down each decision and sets the next times: each time is decided once, or not yet.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from grns.errors import ConflictError, ContendedError, InvalidInputError, NotFoundError
from grns.model.json import Limits
from grns.model.submission import Need, submission
from grns.model.task import TERMINAL, TaskStatus
from grns.model.text import counted
from grns.nats import JetStream
from grns.postgres import audit_log
from grns.postgres.database import Connection, Database, Row, Session, run
from grns.postgres.errors import translated
from grns.runtime.service import PeriodicService
from grns.schedules.model import RunOutcome, Schedule, ScheduleRun
from grns.schedules.service import schedule_of
from grns.schedules.ticks import due
from grns.tasks.announce import announce
from grns.tasks.submit import Prepared, Submitted, answers, call, prepare
from grns.telemetry.service_signals import SchedulePaused, SchedulesDecided

_BATCH = 50
_ACTOR = "schedule"
_FAILED = (TaskStatus.FAILED, TaskStatus.DEAD)


@dataclass(slots=True)
class Decision:
    """What becomes of one time that is due. A task `waits` for the one before where both may not run."""

    schedule: Schedule
    due_at: datetime
    outcome: RunOutcome
    reason: str | None = None
    task_id: str | None = None
    missed: int | None = None
    run_at: datetime | None = None
    waits: bool = False


@dataclass(slots=True)
class DueSchedule:
    """A schedule that is due, and how its last task is."""

    schedule: Schedule
    now: datetime
    last_status: str | None
    last_waits_for: str | None
    is_counted: bool
    next_at: datetime | None = None

    def count_failures(self) -> str | None:
        """Count the last task, once it has ended, and return why the schedule is to be paused, if it is."""
        one = self.schedule
        if self.is_counted or self.last_status not in TERMINAL:
            return None
        self.is_counted = True
        failures = one.failures + 1 if self.last_status in _FAILED else one.failures
        self.schedule = replace(one, failures=0 if self.last_status == TaskStatus.SUCCEEDED else failures)
        if one.pause_after_failures is None or self.schedule.failures < one.pause_after_failures:
            return None
        last = f"the last task, {one.last_task_id}, ended {self.last_status}"
        return f"{counted(failures, 'failure')} in a row: {last}"

    def decide(self) -> list[Decision]:
        """Return what becomes of each time that is due, and set the next one.

        Raises InvalidInputError, or an error of arithmetic, if it has no times.
        """
        one = self.schedule
        if one.next_at == one.anchor_at:  # put in SQL, which cannot read a cron expression
            self.next_at = next(one.rhythm.after(one.anchor_at))
            return []
        found = due(
            one.rhythm, one.next_at, self.now, catch_up=one.catch_up, window_seconds=one.window_seconds
        )
        self.next_at = found.next_at
        decisions = []
        if found.missed is not None:
            decisions.append(Decision(one, found.missed.last_at, "missed", "late", missed=found.missed.count))
        is_running = self.last_status not in (None, *TERMINAL)
        is_waiting = self.last_waits_for == "tasks"
        for due_at in found.submit:
            if is_running and (one.overlap == "skip" or (one.overlap == "queue_one" and is_waiting)):
                decisions.append(Decision(one, due_at, "skipped", "overlap"))
                continue
            is_waiting = is_running and one.overlap == "queue_one"
            decisions.append(Decision(one, due_at, "submitted", run_at=one.run_at(due_at), waits=is_waiting))
            is_running = True
        return decisions

    def decide_now(self, *, is_forced: bool) -> Decision:
        """Return what becomes of a run that was asked for now. The next time stays."""
        one, self.next_at = self.schedule, self.schedule.next_at
        is_running = self.last_status not in (None, *TERMINAL)
        is_waiting = self.last_waits_for == "tasks"
        if is_running and not is_forced:
            if one.overlap == "skip" or (one.overlap == "queue_one" and is_waiting):
                return Decision(one, self.now, "skipped", "overlap")
            return Decision(one, self.now, "submitted", waits=one.overlap == "queue_one")
        return Decision(one, self.now, "submitted")


@dataclass(slots=True, kw_only=True, eq=False)
class Scheduler(PeriodicService):
    """Decides in batches. What cannot be done for one schedule is undone for it alone."""

    database: Database
    transport: JetStream
    limits: Limits
    name: str = "scheduler"
    tick_seconds: float = 0.5

    async def tick(self) -> float:
        """Decide about one batch of schedules that are due."""
        decided: list[Decision] = []
        submitted: list[Prepared] = []
        paused: list[tuple[Schedule, str]] = []
        # Savepoints are the driver's own statements, whose errors nothing else translates.
        with translated():
            found = await self._decide(decided, submitted, paused)
        for schedule, reason in paused:
            self.emit(SchedulePaused(schedule.workspace, schedule.name, reason))
        if decided:
            lateness = max((one.now - one.schedule.next_at).total_seconds() for one in found)
            self.emit(SchedulesDecided(Counter[str](one.outcome for one in decided), lateness))
            await announce(self.transport, submitted)
        return 0.0 if len(found) == _BATCH else self.tick_seconds

    async def _decide(
        self, decided: list[Decision], submitted: list[Prepared], paused: list[tuple[Schedule, str]]
    ) -> list[DueSchedule]:
        async with self.database.transaction() as connection:
            found = await _read(connection)
            for one in found:
                reason = one.count_failures()
                if reason is not None:
                    await _pause(connection, one.schedule, reason)
                    paused.append((one.schedule, reason))
                    continue
                try:
                    async with connection.transaction():
                        decisions = await asyncio.to_thread(one.decide)
                        prepared = await _submit(connection, decisions, self.limits)
                        await _note(connection, decisions, one)
                except ContendedError:
                    continue  # another session holds the key of its task: later
                except (InvalidInputError, ArithmeticError, ValueError) as error:
                    reason = str(error)[:500]
                    await _pause(connection, one.schedule, reason)
                    paused.append((one.schedule, reason))
                else:
                    decided += decisions
                    submitted += prepared
        return found


async def run_now(
    database: Database | Session,
    transport: JetStream,
    name: str,
    *,
    workspace: str,
    actor: str,
    limits: Limits,
    is_forced: bool = False,
) -> ScheduleRun:
    """Decide about a schedule now, also if it is paused; its next time stays.

    Args:
        is_forced: submit a task even if the one before has not ended, whatever `overlap` says.

    Raises:
        NotFoundError: there is no such schedule.
    """
    with translated():
        async with database.transaction() as connection:
            found = await _with_last(connection, await run(connection, "lock_schedule", workspace, name))
            if not found:
                raise NotFoundError(
                    f"there is no schedule {ascii(name)[1:-1][:100]} in workspace {workspace}"
                )
            found[0].count_failures()
            decision = found[0].decide_now(is_forced=is_forced)
            submitted = await _submit(connection, [decision], limits, actor)
            await _note(connection, [decision], found[0], actor)
    await announce(transport, submitted)
    one = decision
    return ScheduleRun(one.due_at, one.outcome, one.reason, one.task_id, one.missed, found[0].now)


async def _read(connection: Connection) -> list[DueSchedule]:
    """Lock schedules that are due; their last tasks are read after that, as they are now."""
    return await _with_last(connection, await run(connection, "due_schedules", _BATCH))


async def _with_last(connection: Connection, rows: Sequence[Row]) -> list[DueSchedule]:
    schedules = [schedule_of(row) for row in rows]
    ids = [one.last_task_id for one in schedules if one.last_task_id is not None]
    last = {row["id"]: row for row in await run(connection, "read_last_tasks", ids)} if ids else {}
    found = []
    for row, schedule in zip(rows, schedules, strict=True):
        task = last.get(schedule.last_task_id)
        status, waits_for = (task["status"], task["waits_for"]) if task else (None, None)
        found.append(DueSchedule(schedule, row["now"], status, waits_for, row["is_counted"]))
    return found


async def _submit(
    connection: Connection, decisions: Sequence[Decision], limits: Limits, actor: str = _ACTOR
) -> list[Prepared]:
    """Submit the tasks of one schedule, one after the other, and return them.

    A key that another task has makes a decision `skipped`.
    """
    submitted = []
    for one in decisions:
        before = one.schedule.last_task_id
        if one.outcome == "skipped":
            one.task_id = before
        if one.outcome != "submitted":
            continue
        prepared = _prepare(one, before if one.waits else None, limits)
        statement, arguments = call([prepared], actor)
        try:
            async with connection.transaction():
                (answer,) = answers([prepared], await run(connection, statement, *arguments))
        except ConflictError as error:
            answer = error
        if isinstance(answer, Submitted):
            one.task_id = answer.id
            one.schedule = replace(one.schedule, last_task_id=answer.id)
            for other in decisions:
                other.schedule = one.schedule
            submitted.append(prepared)
        else:
            one.outcome, one.reason = "skipped", "key_taken"
    return submitted


def _prepare(decision: Decision, before: str | None, limits: Limits) -> Prepared:
    schedule = decision.schedule
    fields = submission(
        task_type=schedule.task_type,
        agent_type=schedule.agent_type,
        workspace=schedule.workspace,
        payload=schedule.payload,
        priority=schedule.priority,
        max_attempts=schedule.max_attempts,
        run_at=decision.run_at,
        idempotency_key=f"schedule/{schedule.name}/{decision.due_at:%Y-%m-%dT%H:%M:%S.%fZ}",
        needs=() if before is None else (Need(task=before, outcome="end"),),
    )
    return prepare(fields, limits)


async def _note(
    connection: Connection, decisions: Sequence[Decision], found: DueSchedule, actor: str | None = None
) -> None:
    """Write down the decisions about one schedule, with an event for each, and its next time."""
    schedule = found.schedule
    last = next((one for one in reversed(decisions) if one.outcome == "submitted"), None)
    await run(
        connection, "note_runs", schedule.workspace, schedule.name, [one.due_at for one in decisions],
        [one.outcome for one in decisions], [one.reason for one in decisions],
        [one.task_id for one in decisions], [one.missed for one in decisions], found.next_at,
        last and last.due_at, last and last.task_id, schedule.failures, found.is_counted,
    )  # fmt: skip
    for one in decisions:
        payload: dict[str, Any] = {
            "schedule": schedule.name, "due_at": one.due_at, "task_type": schedule.task_type,
            "agent_type": schedule.agent_type, "task_id": one.task_id, "reason": one.reason,
            "missed": one.missed,
        }  # fmt: skip
        await audit_log.note(
            connection, workspace=schedule.workspace, kind=f"evt.schedule.{one.outcome}", actor=actor,
            payload=payload,
        )  # fmt: skip


async def _pause(connection: Connection, schedule: Schedule, reason: str) -> None:
    """Pause what fails, or cannot be decided, such as a schedule in a time zone unknown to this machine."""
    failures = schedule.failures
    await run(connection, "pause_schedule", schedule.workspace, schedule.name, "grns", reason, failures)
    payload = {
        "schedule": schedule.name, "when": schedule.when, "task_type": schedule.task_type,
        "agent_type": schedule.agent_type, "reason": reason,
    }  # fmt: skip
    await audit_log.note(
        connection, workspace=schedule.workspace, kind="evt.schedule.paused", actor=None, payload=payload
    )
