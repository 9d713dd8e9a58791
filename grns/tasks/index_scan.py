"""Which index finds the tasks of a filter, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from grns.model.task import TERMINAL, TaskStatus
from grns.model.words import rarest
from grns.postgres.paging import bad_cursor, instant
from grns.postgres.tables import labels, needs, owners_of_words, tags, tasks
from grns.tasks.filter_sql import Columns, Condition

EVERY_STATE = frozenset(TaskStatus)
LATEST, RUNNING, QUEUED, DUE, ENDED = "latest", "running", "queued", "due", "ended"
MEMBERS, LABELLED = "members", "labelled"

_DUE_STATES = {TaskStatus.WAITING, TaskStatus.RETRY_WAIT}
AFTER_ALL = "~"  # no id has it
_AFTER_TASKS = "gr."  # ids of tasks begin with `gr-`; a word is also of messages
# With more pools or fingerprints than these, the index is not searched once for each.
_MOST_AGENTS = 4
_MOST_ISSUES = 4

# Columns that lists show, filters compare, or scans order by.
_COLUMNS = (
    tasks.c.id, tasks.c.workspace, tasks.c.task_type, tasks.c.agent_type, tasks.c.priority, tasks.c.status,
    tasks.c.version, tasks.c.attempt, tasks.c.uncounted_attempts, tasks.c.max_attempts, tasks.c.attempt_limit,
    tasks.c.owner_agent_id, tasks.c.fingerprint, tasks.c.last_error, tasks.c.trace_id,
    tasks.c.idempotency_key, tasks.c.payload, tasks.c.created_at, tasks.c.updated_at, tasks.c.queued_at,
    tasks.c.next_attempt_at, tasks.c.started_at, tasks.c.finished_at, tasks.c.lease_until,
    tasks.c.discarded_at, tasks.c.waits_for,
)  # fmt: skip

Key = tuple[Any, ...]


@dataclass(frozen=True)
class IndexScan:
    """A scan of one index, and the columns that order its rows.

    Each branch is one range of the index in that order; the rows of all branches are merged. If `is_short`,
    the index has another order: its rows are few, so all are read and sorted. If `is_shared`, it has the rows
    of all workspaces. A `fixed` column has one value and orders nothing; outside of its branch the planner
    does not know that, and would read all rows to sort by it. The index is of another table if the scan is
    `through` its column of task ids, in which it has its order.
    """

    name: str
    order: tuple[Column[Any], ...]
    branches: tuple[tuple[Condition, ...], ...]
    is_descending: bool = False
    is_short: bool = False
    is_shared: bool = False
    fixed: frozenset[str] = frozenset()
    through: Column[Any] | None = None

    def rows(self, after: Key, most: int) -> Subquery:
        """Return `most` rows after a key, or the first ones without a key; `place` numbers them from 1."""
        branches = [self._branch(branch, after, most) for branch in self.branches]
        found = (
            self._first(union_all(*branches).subquery("found"), most) if len(branches) > 1 else branches[0]
        )
        place = func.row_number().over(order_by=self.in_order(found.selected_columns)).label("place")
        return found.add_columns(place).subquery("looked_at")

    def until(self, edge: Any) -> IndexScan:
        """Return the scan up to a value of its first column; the whole scan for None."""
        if edge is None:
            return self
        first = self.order[0]
        is_before = first >= edge if self.is_descending else first <= edge
        return replace(self, branches=tuple((*branch, is_before) for branch in self.branches))

    def after_edge(self, edge: Any) -> Key:
        """Return the key after all rows up to an edge."""
        return (edge,) if len(self.order) == 1 else (edge, AFTER_ALL)

    def in_order(self, of: Columns) -> list[Any]:
        """Return the order of rows."""
        columns = [of[column.name] for column in self.order if column.name not in self.fixed]
        return [column.desc() for column in columns] if self.is_descending else columns

    def key(self, texts: list[str], cursor: str) -> Key:
        """Return the key in the parts of a cursor; `InvalidInputError` if they are not one."""
        if texts and len(texts) != len(self.order):
            raise bad_cursor(cursor)
        try:
            return tuple(_value(column, text) for column, text in zip(self.order, texts, strict=False))
        except ValueError as error:
            raise bad_cursor(cursor) from error

    def _branch(self, branch: Iterable[Condition], after: Key, most: int) -> Select[Any]:
        found = select(*_COLUMNS).where(*branch)
        if self.through is not None:
            found = found.join_from(self.through.table, tasks, tasks.c.id == self.through)
            if after:  # the planner knows equal columns of a join, but not what else it knows of one of them
                found = found.where(self.through < after[0])
        if self.is_short:
            # The offset is a fence: without it, the planner may search all tasks, which are in order.
            found = select(found.offset(0).subquery("few"))
        if after:
            columns = tuple_(*(found.selected_columns[column.name] for column in self.order))
            key = tuple_(*map(literal, after, (column.type for column in self.order)))
            found = found.where(columns < key if self.is_descending else columns > key)
        return self._first(found, most)

    def _first(self, found: Select[Any] | Subquery, most: int) -> Select[Any]:
        rows = found if isinstance(found, Select) else select(found)
        # A literal, not a parameter, so that the planner knows that the rows are few.
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


def plans(task_filter: Filter, states: frozenset[TaskStatus], workspace: str) -> list[tuple[IndexScan, ...]]:
    """Return plans for a filter and these states, best first: each is a sequence of scans.

    Each plan finds all tasks. Tasks in any state are found by their ids, which sort by time; if none of the
    latest matches, state by state.
    """
    named = _named(task_filter, workspace)
    if named:
        return [(_by_id(*named),)]
    if workflows := task_filter.texts("workflow"):
        return [(_of_workflows(workflows),)]
    by_state = _by_state(task_filter, states, workspace)
    if labelled := _labelled(task_filter, workspace):
        return [(labelled,), by_state]
    latest = replace(_by_id(()), is_shared=True)
    return [(latest,), by_state] if states == EVERY_STATE else [by_state]


def _by_id(*branches: tuple[Condition, ...]) -> IndexScan:
    return IndexScan(LATEST, (tasks.c.id,), branches, is_descending=True)


def _of_workflows(workflows: Sequence[str]) -> IndexScan:
    """Return the scan of the tasks of workflows, in the order in which they were submitted."""
    # As one array, which the planner cannot turn into a join with all tasks.
    members = select(needs.c.needs).where(needs.c.task_id.in_(workflows)).scalar_subquery()
    return IndexScan(MEMBERS, (tasks.c.id,), ((tasks.c.id == func.any(func.array(members)),),))


def _labelled(task_filter: Filter, workspace: str) -> IndexScan | None:
    """Return the scan of the tasks that have one tag, one word, or one creator, latest first."""
    for text, of, values in (
        (tags.c.tag, tags.c.task_id, task_filter.texts("tag")),
        (owners_of_words.c.word, owners_of_words.c.owner, _rarest_words(task_filter)),
        (labels.c.created_by, labels.c.task_id, task_filter.texts("creator")),
    ):
        if values is not None and len(values) == 1:
            found = (text.table.c.workspace == workspace, text == values[0], of < _AFTER_TASKS)
            return IndexScan(LABELLED, (tasks.c.id,), (found,), is_descending=True, through=of)
    return None


def _rarest_words(task_filter: Filter) -> list[str] | None:
    """Return the rarest word of each text; None if a text has no whole word."""
    found = [pattern.words[0] for pattern in task_filter.patterns("text") or ()]
    return list(map(rarest, found)) if all(found) else None


def _named(task_filter: Filter, workspace: str) -> list[tuple[Condition, ...]]:
    """Return branches for tasks that are named by their ids or idempotency keys."""
    if ids := task_filter.texts("id"):
        return [(tasks.c.id.in_(ids),)]
    if patterns := task_filter.patterns("id"):
        return [_begins(pattern) for pattern in patterns if not _is_among(pattern, patterns)]
    if keys := task_filter.texts("key"):
        return [(tasks.c.workspace == workspace, tasks.c.idempotency_key.in_(keys))]
    return []


def _is_among(pattern: Pattern, others: Iterable[Pattern]) -> bool:
    """Return whether another pattern finds the same tasks, so that each task is found once."""
    prefix = pattern.pieces[0]
    return any(
        prefix.startswith(other.pieces[0]) for other in others if other != pattern and not other.is_exact
    )


def _begins(pattern: Pattern) -> tuple[Condition, ...]:
    prefix = pattern.pieces[0]
    if pattern.is_exact:
        return (tasks.c.id == prefix,)
    return tasks.c.id >= prefix, tasks.c.id < prefix + AFTER_ALL


def _by_state(task_filter: Filter, states: frozenset[TaskStatus], workspace: str) -> tuple[IndexScan, ...]:
    """Return the scans for all tasks in these states. The scan of due tasks is shared by all workspaces."""
    ours = tasks.c.workspace == workspace
    scans: list[IndexScan] = []
    if TaskStatus.RUNNING in states:
        running = (ours, tasks.c.lease_until.is_not(None))
        scans.append(IndexScan(RUNNING, (tasks.c.id,), (running,), is_descending=True, is_short=True))
    if TaskStatus.QUEUED in states:
        agents, priorities = _pools_and_priorities(task_filter)
        subjects = tuple(
            (ours, tasks.c.queued_at.is_not(None), *agent, *priority)
            for agent, priority in product(agents, priorities)
        )
        named = {"agent_type": agents, "priority": priorities}
        fixed = frozenset(name for name, values in named.items() if len(values) == 1 and values[0])
        order = (tasks.c.agent_type, tasks.c.priority, tasks.c.queued_at, tasks.c.id)
        scans.append(IndexScan(QUEUED, order, subjects, fixed=fixed))
    if states & _DUE_STATES:
        due = (tasks.c.next_attempt_at.is_not(None),)
        scans.append(IndexScan(DUE, (tasks.c.next_attempt_at, tasks.c.id), (due,), is_shared=True))
    # Discarded tasks have an index of their own, so that other lists need not skip them.
    marks = {"yes": tasks.c.discarded_at.is_not(None), "no": tasks.c.discarded_at.is_(None)}
    marked, issues = sorted(task_filter.marks), _issues(task_filter)
    ended = tuple(
        (ours, tasks.c.finished_at.is_not(None), tasks.c.status == state.value, marks[mark], *issue)
        for state, mark, issue in product(sorted(states & TERMINAL), marked, issues)
    )
    scans.append(IndexScan(ENDED, (tasks.c.finished_at, tasks.c.id), ended, is_descending=True))
    return tuple(scan for scan in scans if scan.branches)


def _pools_and_priorities(
    task_filter: Filter,
) -> tuple[list[tuple[Condition, ...]], list[tuple[Condition, ...]]]:
    """Return conditions on pools and on priorities; an empty one if the filter allows any."""
    agents = task_filter.texts("pool") or ()
    of_agents: list[tuple[Condition, ...]] = [(tasks.c.agent_type == agent,) for agent in agents]
    if not 0 < len(agents) <= _MOST_AGENTS:
        of_agents = [()]
    of_priorities: list[tuple[Condition, ...]] = [
        (tasks.c.priority == priority,) for priority in sorted(task_filter.priorities)
    ]
    if len(of_priorities) == len(PRIORITIES):
        of_priorities = [()]
    return of_agents, of_priorities


def _issues(task_filter: Filter) -> list[tuple[Condition, ...]]:
    """Return conditions on fingerprints; an empty one if the filter allows any."""
    fingerprints = task_filter.texts("fingerprint") or ()
    if not 0 < len(fingerprints) <= _MOST_ISSUES:
        return [()]
    return [(tasks.c.fingerprint == fingerprint,) for fingerprint in fingerprints]
