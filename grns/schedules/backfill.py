"""Backfill: submit the tasks of times that had none, such as those of a pause."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice

from grns.errors import ConflictError, InvalidInputError
from grns.model.envelope import rfc3339
from grns.model.json import Limits
from grns.nats import JetStream
from grns.postgres.database import Connection, Database, Session, run
from grns.postgres.errors import translated
from grns.schedules.decisions import Decision, DueSchedule, lock, note, prepare_task
from grns.schedules.model import Backfill
from grns.tasks.announce import announce
from grns.tasks.submit import Prepared, answers, call

MOST_TIMES = 1000
_CODE = "bad_backfill"
_LONGEST_AGO = timedelta(days=3660)
# The caller's clock may be ahead of the database's.
_CLOCK_ERROR = timedelta(minutes=1)


async def backfill(
    database: Database | Session,
    transport: JetStream,
    name: str,
    start: datetime,
    end: datetime,
    *,
    workspace: str,
    actor: str,
    limits: Limits,
    is_trial: bool = False,
) -> Backfill:
    """Submit a task for each time from `start` on, before `end`, that had none; paused or not.

    Unless `overlap` is `allow`, each task waits for the end of the one before. Times that the scheduler has
    still to decide about are left to it.

    Args:
        is_trial: count the times, and submit nothing.

    Raises:
        NotFoundError: there is no such schedule.
        InvalidInputError: `bad_backfill`: the range is invalid, or has more than 1,000 times.
        ConflictError: another session took the key of one of the tasks at the same moment.
    """
    start, end = _utc("start", start), _utc("end", end)
    submitted: list[Prepared] = []
    with translated():
        async with database.transaction() as connection:
            found = await lock(connection, name, workspace)
            times = await asyncio.to_thread(_times, found, start, end)
            left = await _left_alone(connection, found, times)
            decisions = _decide(found, [time for time in times if time not in left])
            if decisions and not is_trial:
                submitted = await _submit(connection, decisions, limits, actor)
                found.count_failures()
                await note(connection, decisions, found, actor, "backfill")
    await announce(transport, submitted)
    return Backfill(len(times), len(decisions), len(left), is_trial)


async def _submit(
    connection: Connection, decisions: Sequence[Decision], limits: Limits, actor: str
) -> list[Prepared]:
    """Submit all tasks, or none."""
    batch: list[Prepared] = []
    before = decisions[0].schedule.last_task_id
    for one in decisions:
        batch.append(prepare_task(one, [before] if one.waits and before is not None else [], limits))
        before = one.task_id = batch[-1].id
    statement, arguments = call(batch, actor)
    for answer in answers(batch, await run(connection, statement, *arguments)):
        if isinstance(answer, ConflictError):
            raise answer
        if not answer.created:
            raise ConflictError(f"task {answer.id} was submitted at the same moment: try again")
    return batch


def _utc(name: str, moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise InvalidInputError(_CODE, f"{name}: {moment} has no zone: append Z for UTC")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise InvalidInputError(_CODE, f"{name}: {moment} is out of range") from error


def _times(found: DueSchedule, start: datetime, end: datetime) -> list[datetime]:
    """Return the times of a range. Raises InvalidInputError if the range is invalid, or has too many."""
    one = found.schedule
    if start >= end:
        raise InvalidInputError(_CODE, f"end: {rfc3339(end)} is not after the start")
    if end > found.now + _CLOCK_ERROR:
        raise InvalidInputError(_CODE, f"end: {rfc3339(end)} is in the future: pass at most the present time")
    if start < found.now - _LONGEST_AGO:
        raise InvalidInputError(_CODE, f"start: {rfc3339(start)} is more than ten years ago")
    end = min(end, found.now if one.paused_at is not None else one.next_at)
    times = list(islice(one.rhythm.between(start, end), MOST_TIMES + 1))
    if len(times) > MOST_TIMES:
        raise InvalidInputError(
            _CODE, f"end: the range has more than 1,000 times: pass at most {rfc3339(times[-1])}"
        )
    return times


async def _left_alone(connection: Connection, found: DueSchedule, times: Sequence[datetime]) -> set[datetime]:
    one = found.schedule
    keys = [one.key(time) for time in times]
    rows = await run(connection, "read_left_alone", one.workspace, one.name, times, keys)
    return {row["due_at"] for row in rows}


def _decide(found: DueSchedule, times: Sequence[datetime]) -> list[Decision]:
    """Return a decision for each time. Tasks that may not overlap wait for the one before."""
    one = found.schedule
    waits = found.is_running and one.overlap != "allow"
    decisions = []
    for time in times:
        decisions.append(Decision(one, time, "submitted", run_at=one.run_at(time), waits=waits))
        waits = one.overlap != "allow"
    return decisions
