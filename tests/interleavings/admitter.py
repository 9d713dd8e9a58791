"""A model of the admitter: tasks of one key of which one may be queued or running, and a leader that dies.

Sessions write a status and commit it later. The leader reads where the log is, then all tasks, and from then
on only tasks of which new rows tell; it plans in memory and queues in one statement, which may come when
another one leads already. Its rules are those of `grns/limits/admitter.py` and its statements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeVar

from tests.interleavings.explore import Model
from tests.interleavings.row import Violation

Status = Literal["new", "retry", "waiting", "queued", "running", "ended"]
_LEFT_TO_DO: dict[Status, int] = {"new": 4, "retry": 4, "waiting": 3, "queued": 2, "running": 1, "ended": 0}
Value = TypeVar("Value")
_AWAY, _BEGINS, _LEADS = 0, 1, 2


@dataclass(frozen=True)
class AdmitterRules:
    """How the admitter is built; each False is a way to build it wrongly."""

    guards_epoch: bool = True  # else a statement of an earlier leader counts, too
    reads_cursor_first: bool = True  # else what changes between the tasks and the cursor is never read
    reads_gaps: bool = True  # else it never reads a row that commits after a later one
    counts_queued: bool = True  # else it counts only what runs
    keeps_left: bool = True  # else it forgets what was locked
    retries_wait: bool = True  # else a retry is queued without it


class Admission(NamedTuple):
    """Tasks, log and leader."""

    status: tuple[Status, ...]
    writing: tuple[tuple[int, Status, int], ...] = ()  # uncommitted: task, its status then, number of the row
    rows: tuple[int, ...] = ()  # of each row of the log its task
    phase: int = _AWAY
    read: frozenset[int] = frozenset()
    book: tuple[Status | None, ...] = ()
    plan: int | None = None
    left: frozenset[int] = frozenset()
    old: int | None = None  # what a statement queues that is still under way
    locked: int | None = None
    retries: int = 0
    cancels: int = 0
    locks: int = 0
    faults: int = 0


def begin_admitter(tasks: int, *, retries: int, cancels: int, locks: int, faults: int) -> Admission:
    """Return the state in which no task is submitted and nobody leads."""
    new: Status = "new"
    return Admission(
        (new,) * tasks, book=(None,) * tasks, retries=retries, cancels=cancels, locks=locks, faults=faults
    )


def admitter_model(rules: AdmitterRules) -> Model[Admission]:
    """Return the model of an admitter that is built by `rules`."""
    return Model(partial(_steps, rules), partial(_faults, rules), partial(_distance, rules), _is_at_rest)


def _is_at_rest(state: Admission) -> bool:
    return set(state.status) == {"ended"}


def _distance(rules: AdmitterRules, state: Admission) -> int:
    """Return a number that each step makes smaller."""
    written = {task: status for task, status, _ in state.writing}
    to_do = sum(_LEFT_TO_DO[written.get(task, status)] for task, status in enumerate(state.status))
    far = 100 * (to_do + 5 * state.retries)
    far += 20 * len(state.writing) + 60 * state.locks + 50 * (state.locked is not None)
    far += {_AWAY: 500, _BEGINS: 50, _LEADS: 0}[state.phase] + (state.old is not None)
    if state.phase != _AWAY:
        far += 6 * len(_unread(rules, state))
    if state.phase == _LEADS:
        far += 4 * (state.plan is not None) + 2 * state.book.count("waiting")
        far += sum(
            5 if state.status[task] == "waiting" else 1 for task in state.left if not _is_held(state, task)
        )
    return far


def _steps(rules: AdmitterRules, state: Admission) -> Iterator[tuple[str, Admission]]:
    for task in range(len(state.status)):
        if not _is_held(state, task):
            yield from _session_steps(rules, state, task)
    for one in state.writing:
        yield f"task {one[0]} is committed as {one[1]}", _committed(state, one)
    if state.locked is not None:
        yield "the other session ends", state._replace(locked=None)
    if state.old is not None:
        is_guarded = rules.guards_epoch and state.phase != _AWAY
        after = state._replace(old=None)
        yield "an earlier statement comes", after if is_guarded else _queued(after, state.old)
    yield from _leader_steps(rules, state)


def _session_steps(rules: AdmitterRules, state: Admission, task: int) -> Iterator[tuple[str, Admission]]:
    status = state.status[task]
    after_retry: Status = "waiting" if rules.retries_wait else "queued"
    following: dict[Status, Status] = {
        "new": "waiting", "queued": "running", "running": "ended", "retry": after_retry
    }  # fmt: skip
    if status in following:
        yield _written(state, task, following[status])
    if status == "running" and state.retries:
        yield _written(state._replace(retries=state.retries - 1), task, "retry")
    if status == "waiting" and state.cancels:
        yield _written(state._replace(cancels=state.cancels - 1), task, "ended")
    if status == "waiting" and state.locks:
        yield f"another session locks task {task}", state._replace(locked=task, locks=state.locks - 1)


def _written(state: Admission, task: int, status: Status) -> tuple[str, Admission]:
    writing = (*state.writing, (task, status, len(state.rows)))
    return f"task {task} is written as {status}", state._replace(writing=writing, rows=(*state.rows, task))


def _committed(state: Admission, one: tuple[int, Status, int]) -> Admission:
    task, status, _ = one
    writing = tuple(other for other in state.writing if other != one)
    return _checked(state._replace(status=_with(state.status, task, status), writing=writing))


def _checked(state: Admission) -> Admission:
    if sum(status in ("queued", "running") for status in state.status) > 1:
        raise Violation("two of a key are queued or running")
    return state


def _leader_steps(rules: AdmitterRules, state: Admission) -> Iterator[tuple[str, Admission]]:
    if state.phase == _AWAY:
        yield "a leader begins", _begun(rules, state)
    elif state.phase == _BEGINS:
        yield "it reads on", _reads_on(rules, state)
    elif state.plan is not None:
        yield f"it queues task {state.plan}", _applied(rules, state, state.plan)
    else:
        unread = _unread(rules, state)
        again = frozenset(task for task in state.left if not _is_held(state, task))
        if unread or again:
            read = state.read | (unread if rules.reads_gaps else _up_to(unread))
            after = _noted(rules, state._replace(read=read), again, unread)
            yield f"it follows {sorted(unread)}", after


def _unread(rules: AdmitterRules, state: Admission) -> frozenset[int]:
    """Return the rows that it has not read, and can see."""
    read = state.read
    return frozenset(range(len(state.rows))) - read - {row for _, _, row in state.writing}


def _begun(rules: AdmitterRules, state: Admission) -> Admission:
    after = state._replace(phase=_BEGINS, left=frozenset(), plan=None)
    return _with_cursor(rules, after) if rules.reads_cursor_first else after._replace(book=state.status)


def _reads_on(rules: AdmitterRules, state: Admission) -> Admission:
    after = state._replace(phase=_LEADS)
    if rules.reads_cursor_first:
        return _planned(rules, after._replace(book=state.status))
    return _planned(rules, _with_cursor(rules, after))


def _with_cursor(rules: AdmitterRules, state: Admission) -> Admission:
    seen = frozenset(range(len(state.rows))) - {row for _, _, row in state.writing}
    return state._replace(read=seen if rules.reads_gaps else _up_to(seen))


def _up_to(rows: frozenset[int]) -> frozenset[int]:
    return frozenset(range(max(rows, default=-1) + 1))


def _noted(rules: AdmitterRules, state: Admission, again: frozenset[int], rows: frozenset[int]) -> Admission:
    """Note how tasks are now; what it could not queue stays unknown until it is read again."""
    book, left = list(state.book), state.left - again
    for task in again.union(state.rows[row] for row in rows):
        book[task] = None if task in left else state.status[task]
    return _planned(rules, state._replace(book=tuple(book), left=left))


def _planned(rules: AdmitterRules, state: Admission) -> Admission:
    """Take the first task that waits, if there is room for it, and count it."""
    taking = {"queued", "running"} if rules.counts_queued else {"running"}
    if taking & set(state.book) or "waiting" not in state.book:
        return state
    task = state.book.index("waiting")
    return state._replace(plan=task, book=_with(state.book, task, "queued"))


def _applied(rules: AdmitterRules, state: Admission, task: int) -> Admission:
    if not _is_held(state, task) and state.status[task] == "waiting":
        return _queued(state, task)._replace(plan=None)
    after = state._replace(plan=None, book=_with(state.book, task, None))
    if rules.keeps_left:
        after = after._replace(left=after.left | {task})
    return _planned(rules, after)


def _queued(state: Admission, task: int) -> Admission:
    if _is_held(state, task) or state.status[task] != "waiting":
        return state
    return _checked(state._replace(status=_with(state.status, task, "queued"), rows=(*state.rows, task)))


def _faults(rules: AdmitterRules, state: Admission) -> Iterator[tuple[str, Admission]]:
    if not state.faults:
        return
    after = state._replace(faults=state.faults - 1)
    if state.phase != _AWAY and state.old is None:
        # Its statement may come later, or never.
        gone = after._replace(
            phase=_AWAY, plan=None, book=(None,) * len(state.book), left=frozenset(), read=frozenset()
        )
        yield "the leader dies", gone
        if state.plan is not None:
            yield "the leader is lost, its statement under way", gone._replace(old=state.plan)
    for task, status in enumerate(state.status):
        if status == "running" and not _is_held(state, task):
            yield f"the lease of task {task} expires", _written(after, task, "queued")[1]


def _is_held(state: Admission, task: int) -> bool:
    """Return whether another session holds the lock of a task's row."""
    return state.locked == task or any(one[0] == task for one in state.writing)


def _with(values: tuple[Value, ...], task: int, status: Value) -> tuple[Value, ...]:
    return (*values[:task], status, *values[task + 1 :])
