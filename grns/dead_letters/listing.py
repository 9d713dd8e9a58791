"""Dead letters for people and programs: dead tasks and rejected messages, the latest first, page by page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from sqlalchemy import Select, func, select

from grns.dead_letters.message import DeadMessage
from grns.errors import InvalidInputError
from grns.model.filter import Filter
from grns.model.task import TaskStatus
from grns.postgres import query
from grns.postgres.database import Connection, Database, Row, Session, build
from grns.postgres.paging import Page, cursor, page_of, place
from grns.postgres.tables import dead_letters
from grns.tasks import search as task_page
from grns.tasks.search import MOST_COUNTED, Count

TASK: Final = "task"
MESSAGE: Final = "message"

_DEAD = frozenset({TaskStatus.DEAD, TaskStatus.FAILED})
_LAST_UUID = UUID(int=2**128 - 1)

# When something went wrong, and what: where a list of both kinds is cut.
Place = tuple[datetime, str]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead or failed task, or a rejected message: `what` says which."""

    id: str
    what: Literal["task", "message"]
    name: str
    reason: str | None
    at: datetime
    attempts: int | None
    status: str
    fingerprint: str | None


@dataclass(frozen=True)
class DeadFilter:
    """Which dead letters are wanted: `what` is task or message. Of messages a filter knows nothing."""

    what: str | None = None
    tasks: Filter = field(default_factory=Filter)

    def __post_init__(self) -> None:
        if self.what == MESSAGE and self.tasks.terms:
            raise InvalidInputError(
                "bad_filter", "what a filter asks for only tasks have: ask for one or the other"
            )

    @property
    def has_tasks(self) -> bool:
        """Say whether tasks are wanted."""
        return self.what != MESSAGE

    @property
    def has_messages(self) -> bool:
        """Say whether messages are wanted."""
        return self.what != TASK and not self.tasks.terms


async def now(database: Database | Session) -> datetime:
    """Return the time of the clock that everything was dated by."""
    rows = await query.run(database, select(func.now().label("now")))
    instant: datetime = rows[0]["now"]
    return instant


async def list_dead(
    database: Database | Session, *, workspace: str, wanted: DeadFilter, limit: int, after: str | None = None
) -> Page[DeadLetter]:
    """Return dead and failed tasks, and open messages that belong to no task."""
    if not wanted.has_messages:
        return await _tasks(database, workspace, wanted.tasks, limit, after)
    at = None if after is None else place(after)
    found = [await _messages(database, workspace, limit, at)]
    if wanted.has_tasks:
        behind = at and task_page.after_ended(*at)
        found.append(await _tasks(database, workspace, wanted.tasks, limit, behind))
    return _merged(found, limit)


async def count_dead(database: Database | Session, *, workspace: str, wanted: DeadFilter) -> dict[str, Count]:
    """Return how many tasks and messages `list_dead` finds, by `what`."""
    counts: dict[str, Count] = {}
    if wanted.has_tasks:
        counts[TASK] = await task_page.count(database, workspace=workspace, wanted=wanted.tasks, among=_DEAD)
    if wanted.has_messages:
        (row,) = await database.run("count_letters", workspace, MOST_COUNTED)
        counts[MESSAGE] = Count(row["number"], row["number"] < MOST_COUNTED)
    return counts


async def read_message(database: Database | Session, message_id: UUID, workspace: str) -> DeadMessage | None:
    """Return one message of the dead letters, whole, whatever became of it."""
    rows = await query.run(database, _message(message_id, workspace))
    return _whole(rows[0]) if rows else None


async def lock_message(connection: Connection, message_id: UUID, workspace: str) -> DeadMessage | None:
    """Lock and return one message; None if another transaction has it locked."""
    found = _message(message_id, workspace).with_for_update(skip_locked=True)
    rows = await query.fetch(connection, found)
    return _whole(rows[0]) if rows else None


def _message(message_id: UUID, workspace: str) -> Select[Any]:
    return select(dead_letters).where(dead_letters.c.id == message_id, dead_letters.c.workspace == workspace)


def _whole(row: Row) -> DeadMessage:
    return build(DeadMessage, {**row, "headers": json.loads(row["headers"])})


async def _tasks(
    database: Database | Session, workspace: str, wanted: Filter, limit: int, after: str | None
) -> Page[DeadLetter]:
    page = await task_page.list_tasks(
        database, workspace=workspace, wanted=wanted, limit=limit, after=after, among=_DEAD
    )
    rows = [
        DeadLetter(
            id=task.id,
            what=TASK,
            name=task.task_type,
            reason=task.error_class,
            at=task.finished_at or task.updated_at,
            attempts=task.attempt,
            status=task.status,
            fingerprint=task.fingerprint,
        )
        for task in page.rows
    ]
    return Page(rows, page.next_cursor, page.is_partial)


async def _messages(
    database: Database | Session, workspace: str, limit: int, behind: Place | None
) -> Page[DeadLetter]:
    at, named = behind or (None, None)
    rows = await database.run("list_letters", workspace, limit + 1, at, named and _number(named))
    found = [
        build(DeadLetter, {**row, "id": str(row["id"]), "what": MESSAGE, "fingerprint": None}) for row in rows
    ]
    return page_of(found, limit, _cursor)


def _number(named: str) -> UUID:
    """Return behind which message a list goes on: behind a task of the same time all of them come."""
    try:
        return UUID(named)
    except ValueError:
        return _LAST_UUID


def _merged(found: Sequence[Page[DeadLetter]], limit: int) -> Page[DeadLetter]:
    """Return one page of several, up to where the first of them ends: its rest comes before the others'."""
    rows = sorted((row for page in found for row in page.rows), key=_place, reverse=True)
    end = max((place(page.next_cursor) for page in found if page.next_cursor is not None), default=None)
    seen = [row for row in rows if end is None or _place(row) >= end]
    if len(seen) > limit:
        return Page(seen[:limit], _cursor(seen[limit - 1]))
    is_partial = len(seen) < limit and any(page.is_partial for page in found)
    return Page(seen, end and cursor(*end), is_partial)


def _place(row: DeadLetter) -> Place:
    return row.at, row.id


def _cursor(row: DeadLetter) -> str:
    return cursor(*_place(row))
