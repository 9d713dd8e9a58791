"""What becomes of the times of a schedule: decided, submitted and written down in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from grns.errors import ConflictError
from grns.model.json import Limits
from grns.model.submission import Need, submission
from grns.model.task import TERMINAL, TaskStatus
from grns.model.text import counted
from grns.postgres import audit_log
from grns.postgres.database import Connection, Row, run
from grns.schedules.model import RunOutcome, RunSource, Schedule
from grns.schedules.service import no_schedule, schedule_of
from grns.schedules.ticks import due
from grns.tasks.submit import Prepared, Submitted, answers, call, prepare_stored

_ACTOR = "schedule"
_MOST_BEHIND = 50  # of a long queue, the nearest
_NEXT_IS_DUE = "the next time of its schedule is due"
_FAILED = (TaskStatus.FAILED, TaskStatus.DEAD)


@dataclass(slots=True)
class Decision:
    """What becomes of one time that is due.

    A task `waits` for the one before where both may not run, and `cancels` it if the schedule says so; then
    it also waits for what that one waited for, `behind` it.
    """

    schedule: Schedule
    due_at: datetime
    outcome: RunOutcome
    reason: str | None = None
    task_id: str | None = None
    missed: int | None = None
    run_at: datetime | None = None
    waits: bool = False
    cancels: bool = False
    behind: Sequence[str] = ()


@dataclass(slots=True)
class DueSchedule:
    """A schedule that is due, and how its last task is."""

    schedule: Schedule
    now: datetime
    last_status: str | None
    is_counted: bool
    last_needs: Sequence[str] = ()
    next_at: datetime | None = None  # None: as it was

    @property
    def is_running(self) -> bool:
        """Whether the last task has not ended, or one that it waited for before it was cancelled."""
        return self.last_status not in (None, *TERMINAL) or bool(self.last_needs)

    @property
    def is_waiting(self) -> bool:
        """Whether the last task waits for the end of others."""
        return self.last_status not in TERMINAL and bool(self.last_needs)

    def count_failures(self) -> str | None:
        """Count the last task, once it has ended, and return why the schedule is to be paused, if it is."""
        one = self.schedule
        if self.is_counted or self.last_status not in TERMINAL:
            return None
        self.is_counted = True
        if self.last_status not in _FAILED:
            failures = 0 if self.last_status == TaskStatus.SUCCEEDED else one.failures
            self.schedule = replace(one, failures=failures)
            return None
        failures = one.failures + 1
        self.schedule = replace(one, failures=failures)
        if one.pause_after_failures is None or failures < one.pause_after_failures:
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
        is_running, is_waiting = self.is_running, self.is_waiting
        for due_at in found.submit:
            decision = self._decide_one(due_at, is_running=is_running, is_waiting=is_waiting)
            decisions.append(decision)
            if decision.outcome == "submitted":
                decision.run_at = one.run_at(due_at)
                is_running, is_waiting = True, decision.waits
        return decisions

    def decide_now(self, *, is_forced: bool) -> Decision:
        """Return what becomes of a run that was asked for now. The next time stays."""
        is_running = self.is_running and not is_forced
        return self._decide_one(self.now, is_running=is_running, is_waiting=self.is_waiting)

    def _decide_one(self, due_at: datetime, *, is_running: bool, is_waiting: bool) -> Decision:
        """Return what becomes of one time, as the task before is: it runs, or waits for the one before it."""
        one = self.schedule
        if not is_running or one.overlap == "allow":
            return Decision(one, due_at, "submitted")
        if one.overlap == "skip" or (one.overlap == "queue_one" and is_waiting):
            return Decision(one, due_at, "skipped", "overlap")
        cancels = one.overlap == "cancel_previous"
        return Decision(one, due_at, "submitted", waits=True, cancels=cancels, behind=self.last_needs)


async def lock(connection: Connection, name: str, workspace: str) -> DueSchedule:
    """Lock a schedule, due or not. Raises NotFoundError if there is none."""
    found = await with_last_tasks(connection, await run(connection, "lock_schedule", workspace, name))
    if not found:
        raise no_schedule(name, workspace)
    return found[0]


async def with_last_tasks(connection: Connection, rows: Sequence[Row]) -> list[DueSchedule]:
    """Return locked schedules with their last tasks, which are read now that they are locked."""
    schedules = [schedule_of(row) for row in rows]
    ids = [one.last_task_id for one in schedules if one.last_task_id is not None]
    last = {row["id"]: row for row in await run(connection, "read_last_tasks", ids)} if ids else {}
    found = []
    for row, schedule in zip(rows, schedules, strict=True):
        task = last.get(schedule.last_task_id)
        status, needs = (task["status"], task["needs"]) if task else (None, ())
        found.append(DueSchedule(schedule, row["now"], status, row["is_counted"], needs))
    return found


async def submit(
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
        # The one before may be cancelled, and what it waits for still run.
        needed = [before, *one.behind][:_MOST_BEHIND] if one.waits and before is not None else []
        prepared = prepare_task(one, needed, limits)
        statement, arguments = call([prepared], actor)
        try:
            async with connection.transaction():
                (answer,) = answers([prepared], await run(connection, statement, *arguments))
        except ConflictError as error:
            answer = error
        if isinstance(answer, Submitted):
            if one.cancels and before != answer.id:
                await run(connection, "cancel", [before], _NEXT_IS_DUE, one.schedule.workspace, actor)
            one.task_id = answer.id
            one.schedule = replace(one.schedule, last_task_id=answer.id)
            for other in decisions:
                other.schedule, other.behind = one.schedule, needed
            submitted.append(prepared)
        else:
            one.outcome, one.reason = "skipped", "key_taken"
    return submitted


def prepare_task(decision: Decision, needed: Sequence[str], limits: Limits) -> Prepared:
    """Return the task of a decision, which waits for the end of those that are `needed`."""
    schedule = decision.schedule
    fields = submission(
        task_type=schedule.task_type,
        agent_type=schedule.agent_type,
        workspace=schedule.workspace,
        payload=schedule.payload,
        priority=schedule.priority,
        max_attempts=schedule.max_attempts,
        run_at=decision.run_at,
        idempotency_key=schedule.key(decision.due_at),
        needs=tuple(Need(task=task_id, outcome="end") for task_id in needed),
    )
    return prepare_stored(fields, limits)


async def note(
    connection: Connection,
    decisions: Sequence[Decision],
    found: DueSchedule,
    actor: str | None = None,
    source: RunSource = "tick",
) -> None:
    """Write down the decisions about one schedule, with an event for each, and its next time."""
    schedule = found.schedule
    next_at = found.next_at or schedule.next_at
    last = next((one for one in reversed(decisions) if one.outcome == "submitted"), None)
    await run(
        connection, "note_runs", schedule.workspace, schedule.name, [one.due_at for one in decisions],
        [one.outcome for one in decisions], [one.reason for one in decisions],
        [one.task_id for one in decisions], [one.missed for one in decisions], next_at,
        last and last.due_at, last and last.task_id, schedule.failures, found.is_counted, source,
    )  # fmt: skip
    payloads = [
        {
            "schedule": schedule.name, "due_at": one.due_at, "task_type": schedule.task_type,
            "agent_type": schedule.agent_type, "task_id": one.task_id, "reason": one.reason,
            "missed": one.missed,
        }
        for one in decisions
    ]  # fmt: skip
    changes = [(f"evt.schedule.{one.outcome}", said) for one, said in zip(decisions, payloads, strict=True)]
    if changes:
        await audit_log.note_many(connection, changes, workspace=schedule.workspace, actor=actor)
