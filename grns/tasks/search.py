"""List and count the tasks of a filter, always from an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import ColumnElement, Label, ScalarSelect, Select, Text, and_, case, func, or_, select
from sqlalchemy.dialects.postgresql import array

from grns.model.filter import Filter, Term
from grns.model.task import REDRIVABLE, TaskStatus
from grns.postgres import query
from grns.postgres.database import Database, Row, Session, build
from grns.postgres.paging import Page, bad_cursor, cursor, parts
from grns.postgres.tables import labels, progress
from grns.tasks.filter_sql import Columns, Condition, conditions
from grns.tasks.index_scan import AFTER_ALL, ENDED, EVERY_STATE, LATEST, IndexScan, Key, plans

# Rows of one index scan that a page, and a count, reads at most.
MOST_LOOKED_AT = 1_500
MOST_COUNTED = 3_000

# Statuses whose tasks an issue counts.
_OPEN = frozenset({TaskStatus.DEAD, TaskStatus.FAILED})


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """A task in a list."""

    id: str
    task_type: str
    agent_type: str
    priority: int
    status: TaskStatus
    version: int
    attempt: Annotated[int, Field(description="Number of the latest attempt. It only grows.")]
    uncounted_attempts: Annotated[
        int, Field(description="Attempts that do not count: before a redrive, or given back at a shutdown.")
    ]
    max_attempts: Annotated[
        int | None,
        Field(
            description="How many attempts count at most; null if only the handler says so, and has not yet."
        ),
    ]
    owner_agent_id: str | None
    fingerprint: str | None
    error_class: Annotated[
        str | None, Field(description="Class of the latest error; null of a task that succeeded.")
    ]
    trace_id: str
    idempotency_key: str | None
    created_at: datetime
    updated_at: datetime
    queued_at: datetime | None
    next_attempt_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    lease_until: datetime | None
    discarded_at: datetime | None
    progress_percent: Annotated[
        float | None, Field(description="How far the latest attempt is, as it has reported.")
    ]
    current_step: Annotated[
        str | None, Field(description="What the latest attempt does, as it has reported.")
    ]
    title: Annotated[str | None, Field(description="What people call it.")]
    tags: Annotated[list[str], Field(description="Its tags, sorted.")]
    created_by: Annotated[str | None, Field(description="Who created it, as the submission says.")]


# What is not a column as it is.
_SAID = ("title", "tags", "created_by")
_COMPUTED = frozenset({"max_attempts", "error_class", "progress_percent", "current_step", *_SAID})
_COLUMNS = tuple(field.name for field in fields(TaskSummary) if field.name not in _COMPUTED)


@dataclass(frozen=True, slots=True)
class Count:
    """A number of tasks; a lower bound if it is not exact."""

    number: int
    is_exact: bool = True


@dataclass(frozen=True)
class SearchQuery:
    """A filter, limited to statuses and a workspace."""

    filter: Filter
    states: frozenset[TaskStatus]
    workspace: str

    def condition(self, columns: Columns) -> Condition:
        """Return one SQL condition."""
        terms = [columns.workspace == self.workspace, *conditions(self.filter, columns)]
        if self.states != EVERY_STATE:
            terms.append(columns.status.in_(sorted(self.states)))
        return and_(*terms)


async def list_tasks(
    database: Database | Session,
    *,
    workspace: str,
    wanted: Filter,
    limit: int,
    after: str | None = None,
    among: frozenset[TaskStatus] = EVERY_STATE,
) -> Page[TaskSummary]:
    """Return a page of the tasks of a filter, limited to some statuses.

    The latest tasks come first. If the filter names statuses, or none of the latest tasks matches: running
    tasks, latest first; queued tasks by pool in claim order; due tasks, next first; ended tasks, last first.
    """
    states = wanted.states & among
    search = SearchQuery(wanted, states, workspace)
    scans = plans(wanted, states, workspace)
    if after is not None:
        return await _walk(database, search, *_start(scans, after), limit)
    for plan in scans:
        page = await _walk(database, search, plan, (), limit)
        if page.rows or not page.is_partial:
            break
    return page


async def count(
    database: Database | Session,
    *,
    workspace: str,
    wanted: Filter,
    among: frozenset[TaskStatus] = EVERY_STATE,
) -> Count:
    """Count the tasks of a filter, limited to some statuses.

    Counts by status and type, and open tasks of issues, are maintained by the stats aggregator, except for
    statuses that may be discarded. Other tasks are read, up to a limit.
    """
    states = wanted.states & among
    number, is_exact = 0, True
    if all(_is_counted(term) for term in wanted.terms):
        number = await _sum(database, workspace, states - REDRIVABLE, wanted.texts("type"))
        states &= REDRIVABLE
    search = SearchQuery(wanted, states, workspace)
    for scan in plans(wanted, states, workspace)[0]:
        edge = await _edge(database, scan, (), MOST_COUNTED)
        (row,) = await query.run(database, count_statement(scan.until(edge), search))
        number += row["found"]
        is_exact = is_exact and edge is None and row["looked_at"] < MOST_COUNTED
    if not is_exact and (issues := _issues(wanted, search.states)):
        (row,) = await database.run("sum_open", workspace, issues)
        if row["number"] >= number:
            return Count(row["number"])
    return Count(number, is_exact)


def after_ended(ended_at: datetime, task_id: str) -> str:
    """Return the cursor after a task in a list of ended tasks."""
    return cursor(ENDED, ended_at, task_id)


def page_statement(scan: IndexScan, search: SearchQuery, after: Key, limit: int) -> Select[Any]:
    """Return a statement for one more row than a page has, and for the last row that may be read."""
    of = scan.rows(after, MOST_LOOKED_AT).c
    is_match, is_last = search.condition(of), of.place == MOST_LOOKED_AT
    return (
        select(
            *(of[name] for name in _COLUMNS),
            func.coalesce(of.attempt_limit, of.max_attempts).label("max_attempts"),
            # a task that succeeded shows no error of an earlier attempt
            case((of.status != TaskStatus.SUCCEEDED, of.last_error["class"].astext)).label("error_class"),
            _reported("percent", of).label("progress_percent"),
            _reported("step", of).label("current_step"),
            *(_said(name, of).label(name) for name in _SAID),
            is_match.label("is_match"),
            is_last.label("is_last"),
        )
        .where(or_(is_match, is_last))
        .order_by(*scan.in_order(of))
        .limit(limit + 1)
    )


def _reported(name: str, of: Any) -> ScalarSelect[Any]:
    """Return what the latest attempt of a task has reported."""
    return (
        select(progress.c[name])
        .where(progress.c.task_id == of.id, progress.c.attempt == of.attempt)
        .scalar_subquery()
    )


def _said(name: str, of: Any) -> ColumnElement[Any]:
    """Return what people say of a task."""
    found = select(labels.c[name]).where(labels.c.task_id == of.id).scalar_subquery()
    return func.coalesce(found, array([], type_=Text)) if name == "tags" else found


def count_statement(scan: IndexScan, search: SearchQuery) -> Select[Any]:
    """Return the statement that counts the matching rows of a scan."""
    found = scan.rows((), MOST_COUNTED)
    counts: tuple[Label[Any], ...] = (
        func.count().label("looked_at"),
        func.count().filter(search.condition(found.c)).label("found"),
    )
    return select(*counts).select_from(found)


def _is_counted(term: Term) -> bool:
    """Return whether the stats aggregator counts what a term compares."""
    if term.name == "type":
        return not term.is_negated and all(pattern.is_exact for pattern in term.patterns)
    return term.name == "status"


def _issues(wanted: Filter, states: frozenset[TaskStatus]) -> Sequence[str] | None:
    """Return fingerprints if the filter means the open tasks of issues."""
    if states != _OPEN or any(term.name not in ("status", "fingerprint") for term in wanted.terms):
        return None
    return wanted.texts("fingerprint")


async def _sum(
    database: Database | Session,
    workspace: str,
    states: frozenset[TaskStatus],
    task_types: Sequence[str] | None,
) -> int:
    rows = await database.run("sum_counts", workspace, sorted(states), task_types)
    number: int = rows[0]["number"]
    return number


def _start(scans: Sequence[Sequence[IndexScan]], after: str) -> tuple[Sequence[IndexScan], Key]:
    """Return the rest of a plan from a cursor on, and the key where its first scan begins."""
    name, *texts = parts(after)
    for plan in scans:
        for position, scan in enumerate(plan):
            if scan.name == name:
                return plan[position:], scan.key(texts, after)
    raise bad_cursor(after)


async def _walk(
    database: Database | Session, search: SearchQuery, plan: Sequence[IndexScan], after: Key, limit: int
) -> Page[TaskSummary]:
    rows: list[TaskSummary] = []
    for scan in plan:
        page = await _read(database, search, scan, after, limit - len(rows))
        rows += page.rows
        if page.next_cursor is not None:
            return Page(rows, page.next_cursor, page.is_partial)
        after = ()
    return Page(rows, None)


async def _read(
    database: Database | Session, search: SearchQuery, scan: IndexScan, after: Key, limit: int
) -> Page[TaskSummary]:
    edge = await _edge(database, scan, after, MOST_LOOKED_AT)
    rows = await query.run(database, page_statement(scan.until(edge), search, after, limit))
    found = [row for row in rows if row["is_match"]]
    shown = [_shown(row) for row in found[:limit]]
    if len(found) > limit:
        return Page(shown, _cursor(scan, found[limit - 1]) if limit else cursor(scan.name, *after))
    last = next((row for row in rows if row["is_last"]), None)
    if last is not None:
        return Page(shown, _cursor(scan, last), is_partial=len(shown) < limit)
    if edge is None:
        return Page(shown, None)
    return Page(shown, cursor(scan.name, *scan.after_edge(edge)), is_partial=len(shown) < limit)


async def _edge(database: Database | Session, scan: IndexScan, after: Key, most: int) -> Any:
    """Return the edge after `most` rows of all workspaces; None if there are fewer rows.

    Only a session with row-level security needs it: others see the last row that may be read.
    """
    if not scan.is_shared or not isinstance(database, Session):
        return None
    first = after[0] if after else None
    if scan.name == LATEST:
        (row,) = await database.run("read_edge_of_latest", AFTER_ALL if first is None else first, most)
    else:
        (row,) = await database.run("read_edge_of_due", first, most)
    return row["edge"]


def _shown(row: Row) -> TaskSummary:
    return build(TaskSummary, {**row, "status": TaskStatus(row["status"])})


def _cursor(scan: IndexScan, row: Row) -> str:
    return cursor(scan.name, *(row[column.name] for column in scan.order))
