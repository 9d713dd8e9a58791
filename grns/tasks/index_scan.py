"""The roads through the tasks: which index finds what a filter wants, and in which order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from sqlalchemy import (
    TIMESTAMP,
    Column,
    Select,
    SmallInteger,
    Subquery,
    func,
    literal,
    select,
    tuple_,
    union_all,
)

from grns.model.filter import Filter, Pattern
from grns.model.subjects import PRIORITIES
from grns.model.task import TERMINAL, Status
from grns.postgres.paging import bad_cursor, instant
from grns.postgres.tables import tasks
from grns.tasks.filter_sql import Columns, Condition

EVERY_STATE = frozenset(Status)
LATEST, RUNNING, QUEUED, DUE, ENDED = "latest", "running", "queued", "due", "ended"

_DUE_STATES = {Status.WAITING, Status.RETRY_WAIT}
BEHIND_ALL = "~"  # no id has it
# More agent types, or fingerprints, than these are not looked for one by one.
_MOST_AGENTS = 4
_MOST_ISSUES = 4

# What is shown of a row, what filters look at, and what says where it is on a road.
_COLUMNS = (
    tasks.c.id, tasks.c.workspace, tasks.c.task_type, tasks.c.agent_type, tasks.c.priority, tasks.c.status,
    tasks.c.version, tasks.c.attempt, tasks.c.uncounted_attempts, tasks.c.max_attempts, tasks.c.attempt_limit,
    tasks.c.owner_agent_id, tasks.c.fingerprint, tasks.c.last_error, tasks.c.trace_id,
    tasks.c.idempotency_key, tasks.c.payload, tasks.c.created_at, tasks.c.updated_at, tasks.c.queued_at,
    tasks.c.next_attempt_at, tasks.c.started_at, tasks.c.finished_at, tasks.c.lease_until,
    tasks.c.discarded_at,
)  # fmt: skip

Key = tuple[Any, ...]


@dataclass(frozen=True)
class IndexScan:
    """One road: an index, and the columns by which its rows are in order.

    Each branch is what the index finds in one go, in that order; what all of them find is merged. On a road
    that `is_short` the index has another order: the rows are few, all are read, and then put in order.
    On one that `is_shared` there are the rows of all workspaces.
    A column that is `fixed` has one value, and orders nothing: but outside of the branch that says so the
    planner does not know it, and would read all rows to sort by it.
    """

    name: str
    order: tuple[Column[Any], ...]
    branches: tuple[tuple[Condition, ...], ...]
    is_descending: bool = False
    is_short: bool = False
    is_shared: bool = False
    fixed: frozenset[str] = frozenset()

    def rows(self, behind: Key, most: int) -> Subquery:
        """Return so many rows at most, in order, each with its `place`: the first is 1.

        They are those behind a place on the road or, without one, those with which it begins.
        """
        branches = [self._branch(branch, behind, most) for branch in self.branches]
        found = (
            self._first(union_all(*branches).subquery("found"), most) if len(branches) > 1 else branches[0]
        )
        place = func.row_number().over(order_by=self.in_order(found.selected_columns)).label("place")
        return found.add_columns(place).subquery("looked_at")

    def until(self, edge: Any) -> IndexScan:
        """Return the road as far as such a first column."""
        first = self.order[0]
        is_before = first >= edge if self.is_descending else first <= edge
        return replace(self, branches=tuple((*branch, is_before) for branch in self.branches))

    def behind_edge(self, edge: Any) -> Key:
        """Return the place behind all that is there until an edge."""
        return (edge,) if len(self.order) == 1 else (edge, BEHIND_ALL)

    def in_order(self, of: Columns) -> list[Any]:
        """Return what such rows are sorted by."""
        columns = [of[column.name] for column in self.order if column.name not in self.fixed]
        return [column.desc() for column in columns] if self.is_descending else columns

    def place(self, texts: list[str], said: str) -> Key:
        """Return the place that the parts of a cursor name; `InvalidInputError` where they name none."""
        if texts and len(texts) != len(self.order):
            raise bad_cursor(said)
        try:
            return tuple(_value(column, text) for column, text in zip(self.order, texts, strict=False))
        except ValueError as error:
            raise bad_cursor(said) from error

    def _branch(self, branch: Iterable[Condition], behind: Key, most: int) -> Select[Any]:
        found = select(*_COLUMNS).where(*branch)
        if self.is_short:
            # The offset is a fence: without it, they might be looked for among all tasks, which are in order.
            found = select(found.offset(0).subquery("few"))
        if behind:
            columns = tuple_(*(found.selected_columns[column.name] for column in self.order))
            place = tuple_(*map(literal, behind, (column.type for column in self.order)))
            found = found.where(columns < place if self.is_descending else columns > place)
        return self._first(found, most)

    def _first(self, found: Select[Any] | Subquery, most: int) -> Select[Any]:
        rows = found if isinstance(found, Select) else select(found)
        # Written out and no parameter: the planner is to know that they are few.
        return rows.order_by(*self.in_order(rows.selected_columns)).limit(literal(most, literal_execute=True))


def _value(column: Column[Any], text: str) -> Any:
    if isinstance(column.type, TIMESTAMP):
        return instant(text)
    if not isinstance(column.type, SmallInteger):
        return text
    number = int(text)
    if number not in PRIORITIES:
        raise ValueError(text)
    return number


def plans(wanted: Filter, states: frozenset[Status], workspace: str) -> list[tuple[IndexScan, ...]]:
    """Return the ways to what a filter finds in these states: roads that are walked one behind the other.

    Each way leads to all of it, the first is the best. Tasks in any state are found by their ids, which sort
    by time; where none of the latest is wanted, state by state.
    """
    named = _named(wanted, workspace)
    if named:
        return [(_by_id(*named),)]
    by_state = _by_state(wanted, states, workspace)
    latest = replace(_by_id(()), is_shared=True)
    return [(latest,), by_state] if states == EVERY_STATE else [by_state]


def _by_id(*branches: tuple[Condition, ...]) -> IndexScan:
    return IndexScan(LATEST, (tasks.c.id,), branches, is_descending=True)


def _named(wanted: Filter, workspace: str) -> list[tuple[Condition, ...]]:
    """Return how tasks are found that are named by their ids or keys."""
    if ids := wanted.texts("id"):
        return [(tasks.c.id.in_(ids),)]
    if patterns := wanted.patterns("id"):
        return [_begins(pattern) for pattern in patterns if not _is_among(pattern, patterns)]
    if keys := wanted.texts("key"):
        return [(tasks.c.workspace == workspace, tasks.c.idempotency_key.in_(keys))]
    return []


def _is_among(pattern: Pattern, others: Iterable[Pattern]) -> bool:
    """Say whether another pattern finds all that one does: each task is found once."""
    prefix = pattern.pieces[0]
    return any(
        prefix.startswith(other.pieces[0]) for other in others if other != pattern and not other.is_exact
    )


def _begins(pattern: Pattern) -> tuple[Condition, ...]:
    prefix = pattern.pieces[0]
    if pattern.is_exact:
        return (tasks.c.id == prefix,)
    return tasks.c.id >= prefix, tasks.c.id < prefix + BEHIND_ALL


def _by_state(wanted: Filter, states: frozenset[Status], workspace: str) -> tuple[IndexScan, ...]:
    """Return the roads to all tasks in these states. The one to what is due knows no workspaces."""
    ours = tasks.c.workspace == workspace
    found: list[IndexScan] = []
    if Status.RUNNING in states:
        running = (ours, tasks.c.lease_until.is_not(None))
        found.append(IndexScan(RUNNING, (tasks.c.id,), (running,), is_descending=True, is_short=True))
    if Status.QUEUED in states:
        lane = (tasks.c.agent_type, tasks.c.priority)
        agents, priorities = _lanes(wanted)
        lanes = tuple(
            (ours, tasks.c.queued_at.is_not(None), *agent, *priority)
            for agent, priority in product(agents, priorities)
        )
        named = {"agent_type": agents, "priority": priorities}
        fixed = frozenset(name for name, values in named.items() if len(values) == 1 and values[0])
        order = (*lane, tasks.c.queued_at, tasks.c.id)
        found.append(IndexScan(QUEUED, order, lanes, fixed=fixed))
    if states & _DUE_STATES:
        due = (tasks.c.next_attempt_at.is_not(None),)
        found.append(IndexScan(DUE, (tasks.c.next_attempt_at, tasks.c.id), (due,), is_shared=True))
    # What was discarded has an index of its own: nobody steps over it, and a page is not full of it.
    marks = {"yes": tasks.c.discarded_at.is_not(None), "no": tasks.c.discarded_at.is_(None)}
    ended = tuple(
        (ours, tasks.c.finished_at.is_not(None), tasks.c.status == state.value, marks[mark], *issue)
        for state, mark, issue in product(sorted(states & TERMINAL), sorted(wanted.marks), _issues(wanted))
    )
    found.append(IndexScan(ENDED, (tasks.c.finished_at, tasks.c.id), ended, is_descending=True))
    return tuple(scan for scan in found if scan.branches)


def _lanes(wanted: Filter) -> tuple[list[tuple[Condition, ...]], list[tuple[Condition, ...]]]:
    """Return the agent types, and the priorities, that tasks can have that are wanted: none for any."""
    agents = wanted.texts("pool") or ()
    of_agents: list[tuple[Condition, ...]] = [(tasks.c.agent_type == agent,) for agent in agents]
    if not 0 < len(agents) <= _MOST_AGENTS:
        of_agents = [()]
    of_priorities: list[tuple[Condition, ...]] = [
        (tasks.c.priority == priority,) for priority in sorted(wanted.priorities)
    ]
    if len(of_priorities) == len(PRIORITIES):
        of_priorities = [()]
    return of_agents, of_priorities


def _issues(wanted: Filter) -> list[tuple[Condition, ...]]:
    """Return the issues that tasks can belong to that are wanted: none for any."""
    fingerprints = wanted.texts("fingerprint") or ()
    if not 0 < len(fingerprints) <= _MOST_ISSUES:
        return [()]
    return [(tasks.c.fingerprint == fingerprint,) for fingerprint in fingerprints]
