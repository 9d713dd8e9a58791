"""Lists of tasks, and how many they are: what a filter finds, answered from an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Label, Select, and_, case, func, or_, select

from grns.model.filter import Filter, Term
from grns.model.task import REDRIVABLE, Status
from grns.postgres import query
from grns.postgres.database import Database, Row, Session
from grns.postgres.paging import Page, bad_cursor, cursor, parts
from grns.tasks.filter_sql import Columns, Condition, conditions
from grns.tasks.index_scan import BEHIND_ALL, ENDED, EVERY_STATE, LATEST, IndexScan, Key, plans

# Of one road a page looks at no more rows, and a count at no more.
MOST_LOOKED_AT = 1_500
MOST_COUNTED = 3_000

# Those of which an issue says how many there are.
_OPEN = frozenset({Status.DEAD, Status.FAILED})
_SHOWN = (
    "id", "task_type", "agent_type", "priority", "status", "version", "attempt", "uncounted_attempts",
    "owner_agent_id", "fingerprint", "trace_id", "idempotency_key", "created_at", "updated_at",
    "queued_at", "next_attempt_at", "started_at", "finished_at", "lease_until", "discarded_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Count:
    """How many there are; at least so many, where it is not exact."""

    number: int
    is_exact: bool = True


@dataclass(frozen=True)
class SearchQuery:
    """What has to be true of each row: the filter, and where it is."""

    filter: Filter
    states: frozenset[Status]
    workspace: str

    def of(self, columns: Columns) -> Condition:
        """Return it as one condition."""
        found = [columns.workspace == self.workspace, *conditions(self.filter, columns)]
        if self.states != EVERY_STATE:
            found.append(columns.status.in_(sorted(self.states)))
        return and_(*found)


async def list_tasks(
    database: Database | Session,
    *,
    workspace: str,
    wanted: Filter,
    limit: int,
    after: str | None = None,
    among: frozenset[Status] = EVERY_STATE,
) -> Page:
    """Return the tasks that a filter finds, of those in some states.

    The latest come first. Where states are asked for, or none of the latest is wanted: what runs, the latest
    first; what is queued, by agent type and in the order of claiming; what is due, the next first; what has
    ended, the last first.
    """
    states = wanted.states & among
    asked = SearchQuery(wanted, states, workspace)
    scans = plans(wanted, states, workspace)
    if after is not None:
        return await _walk(database, asked, *_start(scans, after), limit)
    for way in scans:
        page = await _walk(database, asked, way, (), limit)
        if page.rows or not page.is_partial:
            break
    return page


async def count(
    database: Database | Session, *, workspace: str, wanted: Filter, among: frozenset[Status] = EVERY_STATE
) -> Count:
    """Return how many tasks a filter finds, of those in some states.

    By state and type they are counted already, up to where the log is counted; but for those that may have
    been discarded. Others are looked at, and not too many of them; the open ones of an issue are counted.
    """
    states = wanted.states & among
    number, is_exact = 0, True
    if all(_is_counted(term) for term in wanted.terms):
        number = await _sum(database, workspace, states - REDRIVABLE, wanted.texts("type"))
        states &= REDRIVABLE
    asked = SearchQuery(wanted, states, workspace)
    for scan in plans(wanted, states, workspace)[0]:
        edge = await _edge(database, scan, (), MOST_COUNTED)
        (row,) = await query.run(database, tally(scan if edge is None else scan.until(edge), asked))
        number += row["found"]
        is_exact = is_exact and edge is None and row["looked_at"] < MOST_COUNTED
    if not is_exact and (issues := _issues(wanted, asked.states)):
        (row,) = await database.run("sum_open", workspace, issues)
        if row["number"] >= number:
            return Count(row["number"])
    return Count(number, is_exact)


def after_ended(ended_at: datetime, task_id: str) -> str:
    """Return the cursor behind a task in a list of those that have ended."""
    return cursor(ENDED, ended_at, task_id)


def look(scan: IndexScan, wanted: SearchQuery, behind: Key, limit: int) -> Select[Any]:
    """Return the statement for one more row than a page has; and for the last one that may be looked at."""
    of = scan.rows(behind, MOST_LOOKED_AT).c
    is_wanted, is_last = wanted.of(of), of.place == MOST_LOOKED_AT
    return (
        select(
            *(of[name] for name in _SHOWN),
            func.coalesce(of.attempt_limit, of.max_attempts).label("max_attempts"),
            # the error of an attempt before the one that succeeded is history
            case((of.status != Status.SUCCEEDED, of.last_error["class"].astext)).label("error_class"),
            is_wanted.label("is_wanted"),
            is_last.label("is_last"),
        )
        .where(or_(is_wanted, is_last))
        .order_by(*scan.in_order(of))
        .limit(limit + 1)
    )


def tally(scan: IndexScan, wanted: SearchQuery) -> Select[Any]:
    """Return the statement that counts what is wanted on a road."""
    found = scan.rows((), MOST_COUNTED)
    counts: tuple[Label[Any], ...] = (
        func.count().label("looked_at"),
        func.count().filter(wanted.of(found.c)).label("found"),
    )
    return select(*counts).select_from(found)


def _is_counted(term: Term) -> bool:
    """Say whether the counts are kept by what a term asks for."""
    if term.name == "type":
        return not term.is_negated and all(pattern.is_exact for pattern in term.patterns)
    return term.name == "status"


def _issues(wanted: Filter, states: frozenset[Status]) -> Sequence[str] | None:
    """Return the fingerprints of the issues whose open tasks are just what is wanted, if that is so."""
    if states != _OPEN or any(term.name not in ("status", "fingerprint") for term in wanted.terms):
        return None
    return wanted.texts("fingerprint")


async def _sum(
    database: Database | Session, workspace: str, states: frozenset[Status], task_types: Sequence[str] | None
) -> int:
    rows = await database.run("sum_counts", workspace, sorted(states), task_types)
    number: int = rows[0]["number"]
    return number


def _start(scans: Sequence[Sequence[IndexScan]], after: str) -> tuple[Sequence[IndexScan], Key]:
    """Return what is left of a way behind a cursor, and where on its first road that begins."""
    name, *texts = parts(after)
    for way in scans:
        for place, scan in enumerate(way):
            if scan.name == name:
                return way[place:], scan.place(texts, after)
    raise bad_cursor(after)


async def _walk(
    database: Database | Session, wanted: SearchQuery, way: Sequence[IndexScan], behind: Key, limit: int
) -> Page:
    rows: list[dict[str, Any]] = []
    for scan in way:
        page = await _read(database, wanted, scan, behind, limit - len(rows))
        rows += page.rows
        if page.next_cursor is not None:
            return Page(rows, page.next_cursor, page.is_partial)
        behind = ()
    return Page(rows, None)


async def _read(
    database: Database | Session, wanted: SearchQuery, scan: IndexScan, behind: Key, limit: int
) -> Page:
    edge = await _edge(database, scan, behind, MOST_LOOKED_AT)
    rows = await query.run(database, look(scan if edge is None else scan.until(edge), wanted, behind, limit))
    found = [row for row in rows if row["is_wanted"]]
    shown = [_shown(row) for row in found[:limit]]
    if len(found) > limit:
        return Page(shown, _cursor(scan, found[limit - 1]) if limit else cursor(scan.name, *behind))
    last = next((row for row in rows if row["is_last"]), None)
    if last is not None:
        return Page(shown, _cursor(scan, last), is_partial=len(shown) < limit)
    if edge is None:
        return Page(shown, None)
    return Page(shown, cursor(scan.name, *scan.behind_edge(edge)), is_partial=len(shown) < limit)


async def _edge(database: Database | Session, scan: IndexScan, behind: Key, most: int) -> Any:
    """Return where so many rows end, whosesoever they are, None where there are not so many.

    Only who is confined has to know: others find the last row that may be looked at among all that they see.
    """
    if not scan.is_shared or not isinstance(database, Session):
        return None
    first = behind[0] if behind else None
    if scan.name == LATEST:
        (row,) = await database.run("read_edge_of_latest", BEHIND_ALL if first is None else first, most)
    else:
        (row,) = await database.run("read_edge_of_due", first, most)
    return row["edge"]


def _shown(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("is_wanted", "is_last")}


def _cursor(scan: IndexScan, row: Row) -> str:
    return cursor(scan.name, *(row[column.name] for column in scan.order))
