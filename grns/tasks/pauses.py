"""Pauses of pools: rows that every claim looks at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from grns.errors import ConflictError, InvalidInputError
from grns.postgres import audit_log as change
from grns.postgres.database import Connection, Database, Session, run

_ALL = ""  # in the place of a task type
_MOST = 1000


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a pool, or of one of its task types.

    It lasts until it is resumed, or until its end: `left_seconds` after it was read, by the database's clock.
    That of a `budget` lasts until more of the budget is allowed, or its next period begins.
    """

    workspace: str
    agent_type: str
    task_type: str | None
    paused_at: datetime
    paused_by: str
    reason: str | None
    until: datetime | None
    budget: str | None
    left_seconds: float | None


async def begin(
    database: Database | Session,
    *,
    workspace: str,
    agent_type: str,
    task_type: str | None,
    actor: str,
    reason: str | None,
    until: float | datetime | None,
) -> Pause:
    """Pause a pool or one task type of it, until then or for so many seconds.

    One that is paused already is from now on paused for this reason and until this time.
    """
    at, seconds = (until, None) if isinstance(until, datetime) else (None, until)
    async with database.transaction() as connection:
        rows = await run(
            connection, "pause_pool", workspace, agent_type, task_type or _ALL, actor, reason, at, seconds
        )
        if not rows:
            raise InvalidInputError("bad_until", "a pause ends in the future")
        begun = Pause(**rows[0])
        await note_begin(connection, actor, begun)
    return begun


async def end(
    database: Database | Session, *, workspace: str, agent_type: str, task_type: str | None, actor: str
) -> Pause | None:
    """End a pause, and return what it was; None where there was none. That of a budget is a ConflictError."""
    async with database.transaction() as connection:
        rows = await run(connection, "resume_pool", workspace, agent_type, task_type or _ALL)
        if rows:
            ended = Pause(**rows[0])
            await note_end(connection, actor, ended)
            return ended
    for one in await in_force(database, workspace, [agent_type]):
        if one.budget is not None and one.task_type == task_type:
            raise ConflictError(
                f"the budget {one.budget} is used up and has paused {agent_type}:"
                f" allow more of it (grns pool budget allow {one.budget})"
            )
    return None


async def end_lapsed(database: Database, limit: int) -> int:
    """End pauses whose time is over; returns how many."""
    async with database.transaction() as connection:
        rows = await run(connection, "end_pauses", limit)
        for row in rows:
            await note_end(connection, None, Pause(**row))
    return len(rows)


async def in_force(database: Database | Session, workspace: str, agent_types: Sequence[str]) -> list[Pause]:
    """Return the pauses of some pools, a thousand at most; of each pool that of all of it comes first."""
    rows = await database.run("read_pauses", workspace, list(agent_types), _MOST)
    return [Pause(**row) for row in rows]


async def of_whole_pools(database: Database, after: tuple[str, str], limit: int) -> list[Pause]:
    """Return the pauses of whole pools in all workspaces, those behind a workspace and agent type."""
    return [Pause(**row) for row in await database.run("read_paused_pools", *after, limit)]


async def note_begin(connection: Connection, actor: str | None, begun: Pause) -> None:
    """Log a pause, in its transaction."""
    await change.note(
        connection, workspace=begun.workspace, kind="evt.pool.paused", actor=actor,
        payload={
            "agent_type": begun.agent_type, "task_type": begun.task_type, "until": begun.until,
            "reason": begun.reason,
        },
    )  # fmt: skip


async def note_end(connection: Connection, actor: str | None, ended: Pause) -> None:
    """Log the end of a pause, in its transaction."""
    await change.note(
        connection, workspace=ended.workspace, kind="evt.pool.resumed", actor=actor,
        payload={"agent_type": ended.agent_type, "task_type": ended.task_type},
    )  # fmt: skip
