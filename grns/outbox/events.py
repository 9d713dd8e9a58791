"""Read the events of a workspace page by page, for API, CLI and dashboard."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from grns.errors import InvalidInputError
from grns.model.json import loads_stored
from grns.model.task import TaskStatus, statuses_of
from grns.model.timeline import Attempt, AttemptEvent, attempts
from grns.postgres.database import Database, Row, Session, build
from grns.postgres.paging import Page, bad_cursor

# Numbers of the log that a page reads at most, of all workspaces.
MOST_LOOKED_AT = 10_000
# Payloads may be long, and a page is in memory until the client has read it.
MOST_BYTES = 8 * 1024 * 1024
_MOST_KINDS = 20
_KIND = re.compile(r"(evt|dlq|cmd)(\.([A-Za-z0-9_-]{1,64}|\*)){2,4}", re.ASCII)
_HIGHEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A row of the event log. The statuses are those of its task before and after it, if it changed them."""

    seq: int
    version: int
    message_id: str
    workspace: str
    task_id: str | None
    kind: str
    attempt: int | None
    trace_id: str
    causation_id: str | None
    actor: str | None
    payload: dict[str, Any]
    created_at: datetime
    previous_status: TaskStatus | None = None
    new_status: TaskStatus | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The first number of the log, and its high-water mark: no new row appears below it."""

    first: int
    settled: int


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Selects events of a workspace, optionally of one task and of kinds such as `evt.task.*`.

    Without kinds it selects all events and dead letters; commands only if a kind names them.
    """

    workspace: str
    kinds: Sequence[str] = ()
    task_id: str | None = None

    def __post_init__(self) -> None:
        if len(self.kinds) > _MOST_KINDS:
            raise InvalidInputError("bad_kind", f"pass at most {_MOST_KINDS} kinds")
        for kind in self.kinds:
            if not _KIND.fullmatch(kind):
                shown = ascii(kind)[:100]
                raise InvalidInputError(
                    "bad_kind", f"{shown} is not a kind: pass evt.task.dead, evt.task.* or dlq.task.*"
                )

    @property
    def patterns(self) -> list[str]:
        """The kinds as one regular expression, which costs less than several; a star matches one word."""
        words = "|".join(kind.replace(".", r"\.").replace("*", "[^.]+") for kind in self.kinds)
        return [f"^({words})$" if words else r"^(evt|dlq)\."]


async def bounds(database: Database) -> Bounds:
    """Return the first number, and the progress of relay or stats aggregator, whichever is ahead."""
    (row,) = await database.run("read_bounds")
    return Bounds(row["first"], row["settled"])


async def read_events(
    database: Database | Session, wanted: EventQuery, log: Bounds, *, behind: int, limit: int
) -> tuple[list[LogEvent], int]:
    """Return events after a number of the log, the oldest first, and the last number that was read.

    If that is below the high-water mark, there may be more.
    """
    start = max(behind, log.first - 1)
    end = min(start + MOST_LOOKED_AT, log.settled)
    found, is_cut = await _read(database, "read_events", wanted, start, end, limit)
    return found, found[-1].seq if is_cut else max(end, start)


async def list_events(
    database: Database | Session, wanted: EventQuery, log: Bounds, *, limit: int, after: str | None = None
) -> Page[LogEvent]:
    """Return events up to the high-water mark, the latest first."""
    last = log.settled if after is None else min(log.settled, place(after) - 1)
    start = max(last - MOST_LOOKED_AT, log.first - 1)
    found, is_cut = await _read(database, "list_events", wanted, start, last, limit)
    first = found[-1].seq if is_cut else start + 1
    if first <= log.first:
        return Page(found, None)
    return Page(found, str(first), is_partial=len(found) < limit)


async def list_task_events(
    database: Database | Session, task_id: str, *, workspace: str, limit: int, behind: int = 0
) -> Page[LogEvent]:
    """Return events of one task after a number of the log, in order; the cursor is such a number."""
    rows = await database.run("read_task_events", task_id, workspace, behind, limit + 1, MOST_BYTES)
    found = [_event(row) for row in rows[:limit]]
    is_cut = bool(rows) and rows[0]["found"] > len(found)
    return Page(found, str(found[-1].seq) if is_cut else None, is_partial=is_cut and len(found) < limit)


async def read_attempts(
    database: Database | Session, task_id: str, *, workspace: str, limit: int, before: int | None = None
) -> Page[Attempt]:
    """Return the latest attempts of a task before a number of the log, in order.

    They are built from at most `limit` transitions; the cursor is the number before which to continue.
    """
    rows = await database.run("read_attempts", task_id, workspace, before, limit + 1)
    found = [
        build(AttemptEvent, {**row, "payload": loads_stored(row["payload"])})
        for row in reversed(rows[:limit])
    ]
    is_cut = len(rows) > limit
    if is_cut:  # attempts are complete: the end of one that began earlier belongs to the next page
        begun = [at for at, row in enumerate(found) if row.kind == "evt.task.claimed"]
        found = found[begun[0] :] if begun else []
    first: int | None = found[0].seq if found else rows[limit - 1]["seq"] if is_cut else None
    return Page(attempts(found), str(first) if is_cut else None)


async def history(database: Database | Session, task_id: str, workspace: str) -> list[LogEvent]:
    """Return all events of one task, in order."""
    return [_event(row) for row in await database.run("read_history", task_id, workspace)]


def place(said: str) -> int:
    """Return the number of the log in a cursor; raises `InvalidInputError` for an invalid one."""
    if not (said.isascii() and said.isdecimal() and len(said) <= 19 and int(said) <= _HIGHEST):
        raise bad_cursor(said)
    return int(said)


async def _read(
    database: Database | Session, name: str, wanted: EventQuery, start: int, end: int, limit: int
) -> tuple[list[LogEvent], bool]:
    """Return events, and whether the range may have more."""
    rows = await database.run(
        name, wanted.workspace, start, end, wanted.patterns, wanted.task_id, limit, MOST_BYTES
    )
    is_cut = len(rows) == limit or (bool(rows) and rows[0]["found"] > len(rows))
    return [_event(row) for row in rows], is_cut


def _event(row: Row) -> LogEvent:
    values = {**row, "payload": loads_stored(row["payload"])}
    values["previous_status"], values["new_status"] = statuses_of(row["kind"], row["was"])
    return build(LogEvent, values)
