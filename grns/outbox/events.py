"""The log as people and programs outside read it: a workspace's events, page by page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grns.errors import InvalidInputError
from grns.model.json import loads_stored
from grns.model.timeline import timeline
from grns.postgres.database import Database, Row, Session
from grns.postgres.paging import Page, bad_cursor

# A page looks at no more numbers of the log than this, whosesoever they are.
MOST_LOOKED_AT = 10_000
# A payload may be long, and a page is kept in memory until somebody has read it.
MOST_BYTES = 8 * 1024 * 1024
_MOST_KINDS = 20
_KIND = re.compile(r"(evt|dlq|cmd)(\.([A-Za-z0-9_-]{1,64}|\*)){2,4}", re.ASCII)
_HIGHEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where the log begins, and up to where it is settled: below that, no number turns up any more."""

    first: int
    settled: int


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Which events are wanted: of a workspace, perhaps of one task, and of kinds as `evt.task.*`.

    Without kinds it is all events and dead letters; commands are told only to who asks for them.
    """

    workspace: str
    kinds: Sequence[str] = ()
    task_id: str | None = None

    def __post_init__(self) -> None:
        if len(self.kinds) > _MOST_KINDS:
            raise InvalidInputError("bad_kind", f"{_MOST_KINDS} kinds are as many as can be asked for")
        for kind in self.kinds:
            if not _KIND.fullmatch(kind):
                shown = ascii(kind)[:100]
                raise InvalidInputError(
                    "bad_kind", f"{shown} is no kind: write evt.task.dead, evt.task.* or dlq.task.*"
                )

    @property
    def patterns(self) -> list[str]:
        """The kinds, as the database compares them: each star is one word."""
        words = (kind.replace(".", r"\.").replace("*", "[^.]+") for kind in self.kinds)
        return [f"^{word}$" for word in words] or [r"^(evt|dlq)\."]


async def bounds(database: Database) -> Bounds:
    """Return where the log begins, and as far as relay or counter have got, whoever has got farther."""
    (row,) = await database.run("read_bounds")
    return Bounds(row["first"], row["settled"])


async def read_events(
    database: Database | Session, wanted: EventQuery, log: Bounds, *, behind: int, limit: int
) -> tuple[list[dict[str, Any]], int]:
    """Return events behind a number of the log, the oldest first; and up to where it was looked at.

    Where that is below what is settled, there may be more.
    """
    start = max(behind, log.first - 1)
    end = min(start + MOST_LOOKED_AT, log.settled)
    found, is_cut = await _read(database, "read_events", wanted, start, end, limit)
    return found, found[-1]["seq"] if is_cut else max(end, start)


async def list_events(
    database: Database | Session, wanted: EventQuery, log: Bounds, *, limit: int, after: str | None = None
) -> Page:
    """Return events up to where the log is settled, the latest first."""
    last = log.settled if after is None else min(log.settled, place(after) - 1)
    start = max(last - MOST_LOOKED_AT, log.first - 1)
    found, is_cut = await _read(database, "list_events", wanted, start, last, limit)
    first = found[-1]["seq"] if is_cut else start + 1
    if first <= log.first:
        return Page(found, None)
    return Page(found, str(first), is_partial=len(found) < limit)


async def list_task_events(
    database: Database | Session, task_id: str, *, workspace: str, limit: int, behind: int = 0
) -> Page:
    """Return events of one task behind a number of the log, in order; its cursor is such a number."""
    rows = await database.run("read_task_events", task_id, workspace, behind, limit + 1, MOST_BYTES)
    found = [_event(row) for row in rows[:limit]]
    is_cut = bool(rows) and rows[0]["found"] > len(found)
    return Page(found, str(found[-1]["seq"]) if is_cut else None, is_partial=is_cut and len(found) < limit)


async def read_attempts(
    database: Database | Session, task_id: str, *, workspace: str, limit: int, before: int | None = None
) -> Page:
    """Return the latest attempts of a task before a number of the log, in order, as far as it has them.

    They are told from `limit` transitions at most; the cursor is the number before which to go on.
    """
    rows = await database.run("read_attempts", task_id, workspace, before, limit + 1)
    found = [{**row, "payload": loads_stored(row["payload"])} for row in reversed(rows[:limit])]
    is_cut = len(rows) > limit
    if is_cut:  # an attempt is told whole: what ends one that began before is for the next page
        begun = [at for at, row in enumerate(found) if row["kind"] == "evt.task.claimed"]
        found = found[begun[0] :] if begun else []
    first = found[0] if found else rows[limit - 1] if is_cut else None
    return Page(timeline(found), str(first["seq"]) if is_cut and first else None)


def place(said: str) -> int:
    """Return the number of the log that a cursor is; `InvalidInputError` where it is none."""
    if not (said.isascii() and said.isdecimal() and len(said) <= 19 and int(said) <= _HIGHEST):
        raise bad_cursor(said)
    return int(said)


async def _read(
    database: Database | Session, name: str, wanted: EventQuery, start: int, end: int, limit: int
) -> tuple[list[dict[str, Any]], bool]:
    """Return events, and whether the stretch may have more of them."""
    rows = await database.run(
        name, wanted.workspace, start, end, wanted.patterns, wanted.task_id, limit, MOST_BYTES
    )
    is_cut = len(rows) == limit or (bool(rows) and rows[0]["found"] > len(rows))
    return [_event(row) for row in rows], is_cut


def _event(row: Row) -> dict[str, Any]:
    told = {**row, "payload": loads_stored(row["payload"])}
    del told["found"]
    return told
