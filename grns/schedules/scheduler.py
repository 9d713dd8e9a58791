"""The scheduler: submits the tasks of schedules when they are due.

Any number of schedulers may run. One transaction locks what is due, decides about it, submits the tasks,
writes down each decision and sets the next times: each time is decided once, or not yet.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from grns.errors import ContendedError, InvalidInputError
from grns.model.json import Limits
from grns.nats import JetStream
from grns.postgres.database import Connection, Database, Session, run
from grns.postgres.errors import translated
from grns.runtime.service import PeriodicService
from grns.schedules.decisions import Decision, DueSchedule, lock, note, submit, with_last_tasks
from grns.schedules.model import Schedule, ScheduleRun
from grns.schedules.service import note_change
from grns.tasks.announce import announce
from grns.tasks.submit import Prepared
from grns.telemetry.service_signals import SchedulePaused, SchedulesDecided

_BATCH = 50
_LONGEST_PAUSE_SECONDS = 1.0  # a schedule may be created that is due before


@dataclass(slots=True, kw_only=True, eq=False)
class Scheduler(PeriodicService):
    """Decides in batches. What cannot be done for one schedule is undone for it alone."""

    database: Database
    transport: JetStream
    limits: Limits
    name: str = "scheduler"
    tick_seconds: float = 0.5

    async def tick(self) -> float:
        """Decide about one batch of schedules that are due; return the time until the next ones are."""
        (row,) = await self.database.run("read_next_schedule")
        seconds = _LONGEST_PAUSE_SECONDS if row["seconds"] is None else row["seconds"]
        if seconds > 0:
            return float(min(seconds, _LONGEST_PAUSE_SECONDS))
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
        return 0.0 if decided else self.tick_seconds

    async def _decide(
        self, decided: list[Decision], submitted: list[Prepared], paused: list[tuple[Schedule, str]]
    ) -> list[DueSchedule]:
        async with self.database.transaction() as connection:
            found = await with_last_tasks(connection, await run(connection, "due_schedules", _BATCH))
            for one in found:
                reason = one.count_failures()
                if reason is not None:
                    await _pause(connection, one.schedule, reason)
                    paused.append((one.schedule, reason))
                    continue
                try:
                    async with connection.transaction():
                        decisions = await asyncio.to_thread(one.decide)
                        prepared = await submit(connection, decisions, self.limits)
                        await note(connection, decisions, one)
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
            found = await lock(connection, name, workspace)
            found.count_failures()
            decision = found.decide_now(is_forced=is_forced)
            submitted = await submit(connection, [decision], limits, actor)
            await note(connection, [decision], found, actor, "run")
    await announce(transport, submitted)
    one = decision
    return ScheduleRun(one.due_at, one.outcome, one.reason, one.task_id, one.missed, found.now, "run")


async def _pause(connection: Connection, schedule: Schedule, reason: str) -> None:
    """Pause a schedule that fails or cannot be decided, such as one in a time zone unknown here."""
    failures = schedule.failures
    await run(connection, "pause_schedule", schedule.workspace, schedule.name, "grns", reason, failures)
    await note_change(connection, "evt.schedule.paused", schedule, None, reason)
