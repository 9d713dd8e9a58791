"""Lists for people and programs: filtered, newest first, page by page. The database's clock dates them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Select,
    Subquery,
    Text,
    cast,
    func,
    literal,
    literal_column,
    null,
    select,
    tuple_,
    union_all,
)
from sqlalchemy.dialects.postgresql import asyncpg as asyncpg_dialect

from grns.errors import BadInput
from grns.store.database import Connection, Database, Row
from grns.store.fault import translated
from grns.store.table import dead_letters, tasks

TASK, MESSAGE = "task", "message"

# A filter that few rows pass makes Postgres look at many: nobody's lease depends on the answer.
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True)
class Page:
    """Some rows of a list, and the cursor behind which the rest begins; None where this is all."""

    rows: list[dict[str, Any]]
    next_cursor: str | None


@dataclass(frozen=True)
class TaskFilter:
    """Which tasks are wanted; None does not filter."""

    status: str | None = None
    task_type: str | None = None
    agent_type: str | None = None


@dataclass(frozen=True)
class DeadFilter:
    """Which dead letters are wanted: `what` is task or message; a message has no task type."""

    what: str | None = None
    task_type: str | None = None


async def now(database: Database) -> datetime:
    """Return the time of the clock that everything was dated by."""
    rows = await _run(database, select(func.now().label("now")))
    instant: datetime = rows[0]["now"]
    return instant


async def list_tasks(
    database: Database, *, workspace: str, wanted: TaskFilter, limit: int, after: str | None = None
) -> Page:
    """Return tasks, the latest first. Ids sort by time, so that the primary key is the order."""
    found = select(
        tasks.c.id,
        tasks.c.task_type,
        tasks.c.agent_type,
        tasks.c.priority,
        tasks.c.status,
        tasks.c.attempt,
        func.coalesce(tasks.c.attempt_limit, tasks.c.max_attempts).label("max_attempts"),
        tasks.c.last_error["class"].astext.label("error_class"),
        tasks.c.owner_agent_id,
        tasks.c.next_attempt_at,
        tasks.c.created_at,
        tasks.c.updated_at,
        tasks.c.finished_at,
    ).where(tasks.c.workspace == workspace, *_equal(wanted.status, wanted.task_type, wanted.agent_type))
    if after is not None:
        found = found.where(tasks.c.id < after)
    rows = await _run(database, found.order_by(tasks.c.id.desc()).limit(limit + 1))
    return _page(rows, limit, lambda row: str(row["id"]))


async def list_dead(
    database: Database, *, workspace: str, wanted: DeadFilter, limit: int, after: str | None = None
) -> Page:
    """Return dead and failed tasks, and messages that belong to no task and nobody has dealt with."""
    dead = _dead(workspace, wanted)
    found = select(dead)
    if after is not None:
        at, named = place(after)
        found = found.where(tuple_(dead.c.at, dead.c.id) < tuple_(literal(at, dead.c.at.type), named))
    rows = await _run(database, found.order_by(dead.c.at.desc(), dead.c.id.desc()).limit(limit + 1))
    return _page(rows, limit, lambda row: cursor(row["at"], row["id"]))


async def count_dead(database: Database, *, workspace: str, wanted: DeadFilter) -> dict[str, int]:
    """Return how many tasks and messages `list_dead` would find, by `what`."""
    dead = _dead(workspace, wanted)
    rows = await _run(database, select(dead.c.what, func.count().label("count")).group_by(dead.c.what))
    return {row["what"]: row["count"] for row in rows}


async def read_message(database: Database, message_id: UUID, workspace: str) -> dict[str, Any] | None:
    """Return one message of the dead letters, whole, whatever became of it."""
    rows = await _run(database, _message(message_id, workspace))
    return _whole(rows[0]) if rows else None


async def lock_message(connection: Connection, message_id: UUID, workspace: str) -> dict[str, Any] | None:
    """Return one message for somebody who is about to deal with it; None where somebody else is."""
    found = _message(message_id, workspace).with_for_update(skip_locked=True)
    rows = await _fetch(connection, found)
    return _whole(rows[0]) if rows else None


def _message(message_id: UUID, workspace: str) -> Select[Any]:
    return select(dead_letters).where(dead_letters.c.id == message_id, dead_letters.c.workspace == workspace)


def _whole(row: Row) -> dict[str, Any]:
    return {**row, "headers": json.loads(row["headers"])}


def _equal(
    status: str | None, task_type: str | None, agent_type: str | None = None
) -> list[ColumnElement[bool]]:
    pairs = (
        (tasks.c.status, status), (tasks.c.task_type, task_type), (tasks.c.agent_type, agent_type)
    )  # fmt: skip
    return [column == value for column, value in pairs if value is not None]


def _dead(workspace: str, wanted: DeadFilter) -> Subquery:
    """Return both kinds of dead letters under the same names."""
    ended = select(
        tasks.c.id,
        literal_column(f"'{TASK}'", Text).label("what"),
        tasks.c.task_type.label("name"),
        tasks.c.last_error["class"].astext.label("reason"),
        tasks.c.finished_at.label("at"),
        tasks.c.attempt.label("attempts"),
        tasks.c.status,
        tasks.c.fingerprint,
    ).where(
        tasks.c.workspace == workspace,
        # Written out and no parameters: only so does the planner know the partial index to fit.
        tasks.c.status.in_([literal_column("'dead'"), literal_column("'failed'")]),
        *_equal(None, wanted.task_type),
    )
    rejected = select(
        cast(dead_letters.c.id, Text).label("id"),
        literal_column(f"'{MESSAGE}'", Text).label("what"),
        dead_letters.c.subject.label("name"),
        dead_letters.c.reason,
        dead_letters.c.created_at.label("at"),
        dead_letters.c.delivery_count.label("attempts"),
        dead_letters.c.state.label("status"),
        cast(null(), Text).label("fingerprint"),
    ).where(dead_letters.c.workspace == workspace, dead_letters.c.state == "new")
    has_messages = wanted.what != TASK and wanted.task_type is None
    parts = ([] if wanted.what == MESSAGE else [ended]) + ([rejected] if has_messages else [])
    if not parts:
        raise BadInput("bad_filter", "messages have no task type: ask for one or the other")
    return (union_all(*parts) if len(parts) > 1 else parts[0]).subquery("dead")


def _page(rows: Sequence[Row], limit: int, cursor: Any) -> Page:
    shown = [dict(row) for row in rows[:limit]]
    return Page(shown, cursor(shown[-1]) if len(rows) > limit else None)


def cursor(at: datetime, named: str) -> str:
    """Return the cursor behind a row of a list that goes by time, and then by name."""
    return base64.urlsafe_b64encode(f"{at.isoformat()} {named}".encode()).decode().rstrip("=")


def place(cursor: str) -> tuple[datetime, str]:
    """Return when and what such a list goes on behind; `BadInput` where nobody was given that."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        at, _, named = base64.urlsafe_b64decode(padded).decode().partition(" ")
        instant = datetime.fromisoformat(at)
    except ValueError as error:
        raise _no_cursor(cursor) from error
    if instant.tzinfo is None or not named.isprintable():
        raise _no_cursor(cursor)
    return instant, named


def _no_cursor(cursor: str) -> BadInput:
    return BadInput("bad_cursor", f"{ascii(cursor)[:100]} is no cursor of such a list")


async def _run(database: Database, wanted: Select[Any]) -> Sequence[Row]:
    async with database.connection() as connection, connection.transaction(readonly=True):
        await connection.execute(f"set local statement_timeout = {1000 * _ANSWER_SECONDS:.0f}")
        return await _fetch(connection, wanted)


async def _fetch(connection: Connection, wanted: Select[Any]) -> Sequence[Row]:
    """Run a statement of SQLAlchemy on a connection of ours: compiled here, its values as parameters."""
    compiled = wanted.compile(
        dialect=asyncpg_dialect.dialect(),  # type: ignore[no-untyped-call]
        compile_kwargs={"render_postcompile": True},
    )
    values = [compiled.params[name] for name in compiled.positiontup or ()]
    with translated():
        rows: Sequence[Row] = await connection.fetch(str(compiled), *values, timeout=_ANSWER_SECONDS)
        return rows
