"""A task as far as the protocol goes, and what each guarded statement does to it."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from grns.model.outcome import Verb
from grns.model.task import REDRIVABLE, TERMINAL, TRANSITIONS, TaskStatus, Transition

NOBODY = 0

_TABLE = {(row.source, row.target, row.by): row for row in TRANSITIONS}
# How far a status is from the end, within one attempt.
_HEIGHT = {status: 0 for status in TERMINAL} | {
    TaskStatus.RUNNING: 900, TaskStatus.WAITING: 700, TaskStatus.RETRY_WAIT: 600, TaskStatus.QUEUED: 300
}  # fmt: skip
_CLAIMABLE = (TaskStatus.QUEUED, TaskStatus.RETRY_WAIT)
_WAITING = (TaskStatus.WAITING, TaskStatus.RETRY_WAIT)


class Violation(Exception):
    """Something happened that must never happen."""


class Row(NamedTuple):
    """A task. `lease` names the claim that holds it; time is no more than what is over and what is due."""

    status: TaskStatus
    attempt: int = 0
    limit: int = 3
    uncounted_attempts: int = 0
    released: int = 0
    lease: int = NOBODY
    is_over: bool = False
    is_due: bool = False
    is_cancel_requested: bool = False


class Change(NamedTuple):
    """What a statement did: the row after it, and the line of the table that allows it."""

    row: Row
    line: Transition


def submit(limit: int, *, is_delayed: bool = False) -> Change:
    """Hand a task in."""
    status = TaskStatus.WAITING if is_delayed else TaskStatus.QUEUED
    return Change(Row(status, limit=limit), _line(None, status, "submit"))


@cache
def claim(row: Row, lease: int) -> Change | None:
    """Claim a task that may run now."""
    if row.status not in _CLAIMABLE or (row.status is TaskStatus.RETRY_WAIT and not row.is_due):
        return None
    return _move(row, TaskStatus.RUNNING, "claim", attempt=row.attempt + 1, lease=lease)


def owns(row: Row, attempt: int, lease: int) -> bool:
    """Say whether an attempt may write: the guard of renew, finish and release."""
    return row.status is TaskStatus.RUNNING and row.attempt == attempt and row.lease == lease


def renew(row: Row) -> Row:
    """Renew the lease of an attempt that owns the task; a row that is not reaped yet can be saved."""
    return row._replace(is_over=False)


@cache
def finish(row: Row, verb: Verb) -> Change:
    """Write the outcome of an attempt that owns the task."""
    if verb is Verb.SUCCEED:
        return _move(row, TaskStatus.SUCCEEDED, "finish")
    if verb is Verb.FAIL:
        return _move(row, TaskStatus.FAILED, "finish")
    if row.is_cancel_requested:
        return _move(row, TaskStatus.CANCELLED, "finish")
    if verb is Verb.SNOOZE:
        return _move(row, TaskStatus.RETRY_WAIT, "snooze", uncounted_attempts=row.uncounted_attempts + 1)
    return _move(row, TaskStatus.DEAD if is_spent(row) else TaskStatus.RETRY_WAIT, "finish")


@cache
def release(row: Row, *, has_begun: bool = True) -> Change:
    """Give back an attempt that owns the task: uncounted, but one that has begun not for ever."""
    if row.is_cancel_requested:
        return _move(row, TaskStatus.CANCELLED, "release")
    if not has_begun or row.released < row.limit:
        return _move(
            row, TaskStatus.QUEUED, "release",
            uncounted_attempts=row.uncounted_attempts + 1, released=row.released + has_begun,
        )  # fmt: skip
    return _move(row, TaskStatus.DEAD if is_spent(row) else TaskStatus.QUEUED, "release")


@cache
def reap(row: Row) -> Change | None:
    """Take back a task whose lease is over."""
    if row.status is not TaskStatus.RUNNING or not row.is_over:
        return None
    if row.is_cancel_requested:
        return _move(row, TaskStatus.CANCELLED, "reap")
    return _move(row, TaskStatus.DEAD if is_spent(row) else TaskStatus.QUEUED, "reap")


@cache
def promote(row: Row) -> Change | None:
    """Queue what is due."""
    if row.status not in _WAITING or not row.is_due:
        return None
    return _move(row, TaskStatus.QUEUED, "promote")


def cancel(row: Row) -> Change | Row | None:
    """Cancel a task at once, or ask its attempt to end (a row that changed without a transition)."""
    if row.status is TaskStatus.RUNNING:
        return row._replace(is_cancel_requested=True)
    if row.status in (*_CLAIMABLE, TaskStatus.WAITING):
        return _move(row, TaskStatus.CANCELLED, "cancel", is_cancel_requested=True)
    return None


def redrive(row: Row) -> Change | None:
    """Open an ended task again."""
    if row.status not in REDRIVABLE:
        return None
    return _move(
        row, TaskStatus.QUEUED, "redrive",
        uncounted_attempts=row.attempt, released=0, is_cancel_requested=False,
    )  # fmt: skip


def is_spent(row: Row) -> bool:
    """Say whether no attempt is left."""
    return row.attempt - row.uncounted_attempts >= row.limit


@cache
def distance(row: Row) -> int:
    """Return a number that every transition without a fault makes smaller by 100 at least."""
    return 1000 * (row.limit + row.uncounted_attempts - row.attempt) + _HEIGHT[row.status]


def _move(row: Row, target: TaskStatus, by: str, **changes: Any) -> Change:
    line = _line(row.status, target, by)
    common: dict[str, Any] = {"lease": NOBODY, "is_over": False, "is_due": False}
    return Change(row._replace(status=target, **{**common, **changes}), line)


def _line(source: TaskStatus | None, target: TaskStatus, by: str) -> Transition:
    line = _TABLE.get((source, target, by))
    if line is None:
        raise Violation(f"the table knows no {source} → {target} by {by}")
    return line
