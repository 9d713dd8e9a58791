"""Create, read, pause and delete schedules. Every change is in the event log."""

from __future__ import annotations

from datetime import datetime

from grns.errors import ContendedError, InvalidInputError, NotFoundError
from grns.model.json import Limits, dumps, loads_stored
from grns.model.secret import Path, check_clear
from grns.postgres import audit_log
from grns.postgres.database import Connection, Database, Row, Session, build, run
from grns.postgres.paging import Page, cursor, instant, page_of, parts
from grns.schedules.model import Pruned, Schedule, ScheduleRun, ScheduleSpec
from grns.schedules.ticks import Rhythm
from grns.tasks.secrets import sealed_payload

_LONGEST_REASON = 1000
_MOST_ORPHANS = 1000


def schedule_of(row: Row) -> Schedule:
    """Return a row as a schedule."""
    return build(Schedule, {**row, "payload": loads_stored(row["payload"])})


async def put(
    database: Database | Session,
    spec: ScheduleSpec,
    *,
    workspace: str,
    actor: str,
    limits: Limits,
    is_declared: bool = False,
    secret: tuple[Path, ...] | None = None,
) -> Schedule:
    """Create a schedule, or replace the one of its name. A new rhythm begins now.

    Args:
        is_declared: a worker that starts declares it; `prune` deletes it once no live worker does.
        secret: what the handler declares as secret in the payload; None: the handler is not known.

    Raises InvalidInputError: `bad_schedule`, or the code of what is wrong with its payload.
    """
    text = dumps(spec.payload, limits)
    check_clear(text)
    payload = await sealed_payload(database, text, workspace, spec.task_type, secret)
    async with database.transaction() as connection:
        now = await _now(connection)
        rhythm = Rhythm(spec.cron, spec.every_seconds, spec.time_zone, now)
        rows = await run(
            connection, "put_schedule", workspace, spec.name, spec.cron, spec.every_seconds, spec.time_zone,
            spec.task_type, spec.agent_type, payload, spec.priority, spec.max_attempts, spec.overlap,
            spec.catch_up, spec.window_seconds, now, next(rhythm.after(now)), actor,
            spec.jitter_seconds, spec.pause_after_failures,
        )  # fmt: skip
        # The row is locked, even if nothing is different: no other session deletes it now.
        if is_declared:
            rows = await run(connection, "note_declared", workspace, spec.name)
        if not rows:
            return await _read(connection, spec.name, workspace)
    return schedule_of(rows[0])


async def read(database: Database | Session, name: str, *, workspace: str) -> Schedule:
    """Return a schedule. Raises NotFoundError if there is none."""
    rows = await database.run("read_schedule", workspace, name)
    if not rows:
        raise no_schedule(name, workspace)
    return schedule_of(rows[0])


async def list_schedules(
    database: Database | Session, *, workspace: str, limit: int, after: str | None = None
) -> Page[Schedule]:
    """Return schedules by name."""
    behind = "" if after is None else parts(after)[0]
    rows = await database.run("list_schedules", workspace, behind, limit + 1)
    return page_of([schedule_of(row) for row in rows], limit, lambda one: cursor(one.name))


async def pause(
    database: Database | Session, name: str, *, workspace: str, actor: str, reason: str | None = None
) -> Schedule:
    """Pause a schedule. What is due until it is resumed is not submitted, then or later."""
    if reason is not None and (len(reason) > _LONGEST_REASON or "\x00" in reason):
        raise InvalidInputError("bad_reason", f"a reason has no NUL and at most {_LONGEST_REASON} characters")
    async with database.transaction() as connection:
        rows = await run(connection, "pause_schedule", workspace, name, actor, reason, None)
        if not rows:
            raise no_schedule(name, workspace)
        found = schedule_of(rows[0])
        await note_change(connection, "evt.schedule.paused", found, actor, reason)
    return found


async def resume(database: Database | Session, name: str, *, workspace: str, actor: str) -> Schedule:
    """Resume a schedule from its next time on; one that is not paused stays as it is.

    Its failures are counted from zero, of tasks that it submits from now on.
    """
    async with database.transaction() as connection:
        found = await _read(connection, name, workspace)
        if found.paused_at is None:
            return found
        (following,) = found.next_times(1, after=await _now(connection))
        rows = await run(connection, "resume_schedule", workspace, name, following, found.version)
        if not rows:
            raise ContendedError(f"schedule {name} was changed at the same moment: try again")
        found = schedule_of(rows[0])
        await note_change(connection, "evt.schedule.resumed", found, actor)
    return found


async def delete(database: Database | Session, name: str, *, workspace: str, actor: str) -> None:
    """Delete a schedule. Tasks that it has submitted stay."""
    async with database.transaction() as connection:
        if not await _delete(connection, await _read(connection, name, workspace), actor):
            raise no_schedule(name, workspace)


async def list_orphans(database: Database | Session, *, workspace: str) -> list[Schedule]:
    """Return up to 1,000 schedules that were declared in code and that no live worker declares any more.

    Each live worker of the pool started later than the last one that declared the schedule. Schedules of a
    pool without a live worker, or with one that started less than a minute ago, are not returned.
    """
    rows = await database.run("list_orphans", workspace, _MOST_ORPHANS)
    return [schedule_of(row) for row in rows]


async def prune(
    database: Database | Session, *, workspace: str, actor: str, is_trial: bool = False
) -> Pruned:
    """Delete the schedules that `list_orphans` returns, and return them; with `is_trial`, only return them.

    A schedule that a worker declares at the same moment, or that is changed, stays.
    """
    found = await list_orphans(database, workspace=workspace)
    if is_trial:
        return Pruned(found, is_trial)
    async with database.transaction() as connection:
        deleted = [
            one
            for one in found
            if await _delete(connection, one, actor, "no live worker declares it", one.declared_at)
        ]
    return Pruned(deleted, is_trial)


async def list_runs(
    database: Database | Session, name: str, *, workspace: str, limit: int, after: str | None = None
) -> Page[ScheduleRun]:
    """Return what was decided for a schedule, the latest first."""
    try:
        before, source = (None, None) if after is None else _place(after)
    except ValueError as error:
        raise InvalidInputError("bad_cursor", "not a cursor of this list") from error
    found = await database.fetch(ScheduleRun, "list_runs", workspace, name, before, limit + 1, source)
    return page_of(found, limit, lambda one: cursor(one.due_at, one.source))


def _place(after: str) -> tuple[datetime, str]:
    due_at, source = parts(after)
    return instant(due_at), source


async def _read(connection: Connection, name: str, workspace: str) -> Schedule:
    rows = await run(connection, "read_schedule", workspace, name)
    if not rows:
        raise no_schedule(name, workspace)
    return schedule_of(rows[0])


async def _delete(
    connection: Connection,
    schedule: Schedule,
    actor: str,
    reason: str | None = None,
    declared_at: datetime | None = None,
) -> bool:
    """Delete a schedule; False if it is not there, or no longer declared at this time."""
    # A scheduler that decides about it ends first: the deletion then sees what was decided.
    await run(connection, "lock_schedule", schedule.workspace, schedule.name)
    if not await run(connection, "delete_schedule", schedule.workspace, schedule.name, declared_at):
        return False
    await note_change(connection, "evt.schedule.deleted", schedule, actor, reason)
    return True


async def _now(connection: Connection) -> datetime:
    now: datetime = (await run(connection, "read_time"))[0]["now"]
    return now


async def note_change(
    connection: Connection, kind: str, schedule: Schedule, actor: str | None, reason: str | None = None
) -> None:
    """Write the event of a change of a schedule; without an actor, grns itself made the change."""
    payload = {
        "schedule": schedule.name, "when": schedule.when, "task_type": schedule.task_type,
        "agent_type": schedule.agent_type, "reason": reason,
    }  # fmt: skip
    await audit_log.note(connection, workspace=schedule.workspace, kind=kind, actor=actor, payload=payload)


def no_schedule(name: str, workspace: str) -> NotFoundError:
    """Return the error that says so."""
    return NotFoundError(f"there is no schedule {ascii(name)[1:-1][:100]} in workspace {workspace}")
