"""The comparison: what should have happened, against what did. Every difference is one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grns.dev.demo.truth import DeadLetterRow, DemoEvent, Row
from grns.dev.demo.witness import History
from grns.model.task import STATUS_AFTER, Status

# task type: how each of its tasks must have ended, and after how many attempts at least
ENDS = {
    "digest_file": (Status.SUCCEEDED, 1),
    "flaky": (Status.SUCCEEDED, 2),
    "hopeless": (Status.DEAD, 2),
}

_EXPIRED = "evt.task.lease_expired"
# A lease that expires in the last attempt ends the task as dead.
_TAKEN_BACK = (_EXPIRED, "evt.task.dead")


def rebuilt(history: History) -> Status | None:
    """Return the status that a task's events lead to; None where none was seen."""
    return STATUS_AFTER.get(history[max(history)]) if history else None


def results(rows: Iterable[Row], expected: Mapping[str, Any]) -> list[str]:
    """Compare each result with the one computed directly from the file."""
    found = {row.path: row.result for row in rows if row.path is not None}
    return [f"{path}: no task was about it" for path in expected.keys() - found.keys()] + [
        f"{path}: the result is {result}, and should be {expected.get(path)}"
        for path, result in found.items()
        if path not in expected or result != expected[path]
    ]


def statuses(rows: Iterable[Row], histories: Mapping[str, History]) -> list[str]:
    """Compare each task's row with what its events say."""
    differences = []
    for row in rows:
        history = histories.get(row.id, {})
        if missing := set(range(1, row.version + 1)) - history.keys():
            differences.append(f"{row.id}: nobody saw its events {sorted(missing)}")
        if rebuilt(history) != row.status:
            differences.append(f"{row.id}: is {row.status}, and its events say {rebuilt(history)}")
    return differences


def ends(rows: Iterable[Row], submitted: Mapping[str, int]) -> list[str]:
    """Compare how the tasks ended with how those of their type must."""
    rows = list(rows)
    kinds = Counter(row.task_type for row in rows)
    differences = [
        f"{count} tasks {task_type} were submitted, and {kinds[task_type]} are there"
        for task_type, count in submitted.items()
        if kinds[task_type] != count
    ]
    for row in rows:
        status, attempts = ENDS[row.task_type]
        if row.status != status or row.attempt < attempts:
            differences.append(
                f"{row.id} ({row.task_type}) ended {row.status} after {row.attempt} attempts,"
                f" and should have ended {status} after {attempts} or more"
            )
    return differences


def dead_letters(found: Sequence[DeadLetterRow], sent: Sequence[bytes]) -> list[str]:
    """Compare the dead letters with what the stranger sent: each once, byte for byte."""
    bodies = Counter(letter.body for letter in found)
    wanted = Counter(sent)
    return [f"no dead letter holds {body[:80]!r}" for body in (wanted - bodies).elements()] + [
        f"a dead letter that nobody sent: {body[:80]!r}" for body in (bodies - wanted).elements()
    ]


def accident(held: frozenset[str], entries: Sequence[DemoEvent]) -> list[str]:
    """Look whether everything that the killed worker held was run again."""
    ended = {kind: {entry.task_id for entry in entries if entry.kind == kind} for kind in _TAKEN_BACK}
    if not ended[_EXPIRED]:
        return ["nothing was run again after the kill: it hit nothing"]
    missing = held.difference(*ended.values())
    return [f"{task_id}: was held by the killed worker, and never taken back" for task_id in missing]
