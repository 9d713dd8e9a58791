"""Create, read, pause and delete limits. Every change is in the event log, where the admitter reads it."""

from __future__ import annotations

from collections.abc import Callable

from grns.errors import InvalidInputError, NotFoundError
from grns.limits.model import LimitedPool, LimitKey, LimitSpec, TaskLimit
from grns.model.json import loads_stored
from grns.postgres import audit_log
from grns.postgres.database import Connection, Database, Row, Session, build, run
from grns.postgres.paging import Page, cursor, page_of, parts

_LONGEST_REASON = 1000
MOST_KEY_BYTES = 128  # a longer one is told by its hash
MOST_LIMITS = 8  # of a task: its keys are in an index


def limit_of(row: Row) -> TaskLimit:
    """Return a row as a limit."""
    pools = [LimitedPool(**pool) for pool in loads_stored(row["pools"]) or ()]
    return build(TaskLimit, {**row, "pools": pools})


async def put(database: Database | Session, spec: LimitSpec, *, workspace: str, actor: str) -> TaskLimit:
    """Create a limit, or replace the one of its name; other pools stay under it.

    Tasks that were submitted before keep the keys that they have.
    """
    async with database.transaction() as connection:
        rows = await run(
            connection, "put_limit", workspace, spec.name, spec.max_tasks, spec.rate_count, spec.rate_seconds,
            spec.settled_burst, spec.agent_type, spec.task_types and sorted(set(spec.task_types)),
            spec.key_path, actor,
        )  # fmt: skip
        (most,) = await run(connection, "count_limits", workspace, spec.agent_type)
        if most["count"] > MOST_LIMITS:
            raise InvalidInputError(
                "bad_limit",
                f"a task of the pool {spec.agent_type} would fall under more than {MOST_LIMITS} limits",
            )
        found = await _read(connection, spec.name, workspace)
        if rows:
            kind = "evt.limit.created" if rows[0]["is_new"] else "evt.limit.changed"
            await _note(connection, kind, found, actor)
    return found


async def read(database: Database | Session, name: str, *, workspace: str) -> TaskLimit:
    """Return a limit. Raises NotFoundError if there is none."""
    rows = await database.run("read_limits", workspace, name, "", 1)
    if not rows:
        raise _no_limit(name, workspace)
    return limit_of(rows[0])


async def list_limits(
    database: Database | Session, *, workspace: str, limit: int, after: str | None = None
) -> Page[TaskLimit]:
    """Return limits by name."""
    behind = "" if after is None else parts(after)[0]
    rows = await database.run("read_limits", workspace, None, behind, limit + 1)
    return page_of([limit_of(row) for row in rows], limit, lambda one: cursor(one.name))


async def list_keys(database: Database | Session, name: str, *, workspace: str, limit: int) -> list[LimitKey]:
    """Return the keys of a limit that have tasks, those with the most waiting first.

    It reads all of these tasks.
    """
    return await database.fetch(LimitKey, "list_limit_keys", workspace, name, limit)


async def put_key(
    database: Database | Session,
    name: str,
    key: str,
    *,
    max_tasks: int | None,
    weight: float,
    workspace: str,
    actor: str,
) -> TaskLimit:
    """Give one key of a limit numbers of its own; `max_tasks` None leaves it to the limit."""
    if not 1 <= len(key.encode()) <= MOST_KEY_BYTES or "\x00" in key:
        raise InvalidInputError("bad_limit", f"key: 1 to {MOST_KEY_BYTES} bytes")
    if max_tasks is not None and not 1 <= max_tasks <= 1_000_000:
        raise InvalidInputError("bad_limit", "max: 1 to 1,000,000")
    if not 0.01 <= weight <= 100:
        raise InvalidInputError("bad_limit", "weight: 0.01 to 100")
    async with database.transaction() as connection:
        found = await _read(connection, name, workspace)
        await run(connection, "put_limit_key", workspace, name, key, max_tasks, weight, actor)
        await _note(connection, "evt.limit.changed", found, actor)
    return found


async def delete_key(
    database: Database | Session, name: str, key: str, *, workspace: str, actor: str
) -> TaskLimit:
    """Take the numbers of one key of a limit back. Raises NotFoundError if it has none."""
    async with database.transaction() as connection:
        found = await _read(connection, name, workspace)
        if not await run(connection, "delete_limit_key", workspace, name, key):
            raise NotFoundError(f"the key {ascii(key)[:100]} of limit {name} has no numbers of its own")
        await _note(connection, "evt.limit.changed", found, actor)
    return found


async def pause(
    database: Database | Session, name: str, *, workspace: str, actor: str, reason: str | None = None
) -> TaskLimit:
    """Pause a limit: none of its tasks is queued until it is resumed. Those that are queued go on."""
    if reason is not None and (len(reason) > _LONGEST_REASON or "\x00" in reason):
        raise InvalidInputError("bad_reason", f"a reason has no NUL and at most {_LONGEST_REASON} characters")
    return await _change(
        database, "pause_limit", "evt.limit.paused", name, workspace, actor, reason=reason,
        is_done=lambda one: one.paused_at is not None and one.pause_reason == reason,
    )  # fmt: skip


async def resume(database: Database | Session, name: str, *, workspace: str, actor: str) -> TaskLimit:
    """Resume a limit; one that is not paused stays as it is."""
    return await _change(
        database, "resume_limit", "evt.limit.resumed", name, workspace, actor,
        is_done=lambda one: one.paused_at is None,
    )  # fmt: skip


async def delete(database: Database | Session, name: str, *, workspace: str, actor: str) -> TaskLimit:
    """Delete a limit, and return it. Tasks that wait for room in it alone are queued."""
    async with database.transaction() as connection:
        found = await _read(connection, name, workspace)
        if not await run(connection, "delete_limit", workspace, name):
            raise _no_limit(name, workspace)
        await _note(connection, "evt.limit.deleted", found, actor)
    return found


async def _change(
    database: Database | Session, statement: str, kind: str, name: str, workspace: str, actor: str, *,
    is_done: Callable[[TaskLimit], bool], reason: str | None = None,
) -> TaskLimit:  # fmt: skip
    async with database.transaction() as connection:
        found = await _read(connection, name, workspace)
        if is_done(found):
            return found
        more = (reason,) if statement == "pause_limit" else ()
        await run(connection, statement, workspace, name, actor, *more)
        found = await _read(connection, name, workspace)
        await _note(connection, kind, found, actor, reason)
    return found


async def _read(connection: Connection, name: str, workspace: str) -> TaskLimit:
    rows = await run(connection, "read_limits", workspace, name, "", 1)
    if not rows:
        raise _no_limit(name, workspace)
    return limit_of(rows[0])


async def _note(
    connection: Connection, kind: str, limit: TaskLimit, actor: str, reason: str | None = None
) -> None:
    payload = {
        "limit": limit.name, "max_tasks": limit.max_tasks, "rate": limit.rate, "burst": limit.burst,
        "reason": reason,
    }  # fmt: skip
    await audit_log.note(connection, workspace=limit.workspace, kind=kind, actor=actor, payload=payload)


def _no_limit(name: str, workspace: str) -> NotFoundError:
    return NotFoundError(f"there is no limit {ascii(name)[1:-1][:100]} in workspace {workspace}")
