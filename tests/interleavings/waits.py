"""A model of a handler with a step and a wait for a signal; its rules are those of `18_steps.sql`.

The handler records a step, takes a signal, and ends. While there is no signal it suspends: the attempt ends,
and the task waits until a signal is sent or its time is over. Workers die, and leases run out under workers
that go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tests.interleavings.explore import Model
from tests.interleavings.row import Violation

# What a worker does next, in the order of a handler.
BEGIN, RECORD, TAKE, NOTE, SUSPEND, FINISH = "begin", "record", "take", "note", "suspend", "finish"
_REST = {BEGIN: 6, RECORD: 5, TAKE: 4, NOTE: 3, SUSPEND: 3, FINISH: 1}
_BUDGET = 80  # more than a task takes from being queued to its next wait


@dataclass(frozen=True)
class WaitRules:
    """How steps and waits are built; each False is a way to build them wrongly."""

    knows_steps: bool = True  # else an attempt runs a step that an earlier one has recorded
    takes_and_notes: bool = True  # else a signal is taken in one transaction, and recorded in the next
    looks_again: bool = True  # else a task begins to wait for a signal that has come meanwhile
    fences_steps: bool = True  # else a worker that has lost its task records a step
    fences_waits: bool = True  # else a worker that has lost its task suspends it


class Handler(NamedTuple):
    """A worker at some place of the handler, and the signal that it has taken and not recorded."""

    attempt: int
    place: str
    taken: int = 0


class Waiting(NamedTuple):
    """One task, its steps and signals, and the workers that run it or believe to."""

    status: str = "queued"
    attempt: int = 0
    handlers: tuple[Handler, ...] = ()
    recorded: int = 0  # the attempt that has recorded the step; 0: none has
    answer: int = -1  # what the wait has recorded: the number of a signal, 0 for a time-out, -1 for nothing
    signals: tuple[int, ...] = ()  # sent and not taken
    sent: int = 0
    time: str = "none"  # of the wait: none, runs, over
    is_due: bool = False  # a task that waits though its signal has come
    sends: int = 0
    timers: int = 1
    faults: int = 0


def begin_waits(sends: int, faults: int, timers: int = 1) -> Waiting:
    """Return the state in which the task is queued, and signals may be sent; `timers` is 0 or 1."""
    return Waiting(sends=sends, faults=faults, timers=timers)


def waits_model(rules: WaitRules) -> Model[Waiting]:
    """Return the model of steps and waits that are built by `rules`."""
    return Model(partial(_steps, rules), _faults, _distance, _is_at_rest)


def _is_at_rest(task: Waiting) -> bool:
    is_all_there = len(task.signals) + (task.answer > 0) == task.sent
    return task.status == "done" and task.answer >= 0 and is_all_there


def _distance(task: Waiting) -> int:
    can_wake = task.answer < 0 and (bool(task.signals) or task.time == "over")
    far = _BUDGET * (task.sends + task.timers) + 30 * can_wake
    far += sum(_REST[one.place] for one in task.handlers if not _owns(task, one))
    if task.status == "queued":
        return far + 11
    if task.status == "waiting":
        return far + 12 * (task.is_due or task.time == "over")
    owner = next((one for one in task.handlers if _owns(task, one)), None)
    if task.status == "done":
        return far
    if owner is None:
        return far + 12
    return far + _REST[owner.place] + 4 + 8 * (can_wake and owner.place == SUSPEND)


def _steps(rules: WaitRules, task: Waiting) -> Iterator[tuple[str, Waiting]]:
    if task.sends:
        yield f"signal {task.sent + 1} is sent", _sent(task)
    if task.timers and task.time == "runs":
        yield "the time is over", task._replace(time="over", timers=task.timers - 1)
    if task.status == "queued":
        begun = Handler(task.attempt + 1, BEGIN)
        claimed = task._replace(
            status="running", attempt=begun.attempt, handlers=(*task.handlers, begun), is_due=False
        )
        yield f"attempt {begun.attempt} begins", claimed
    if task.status == "waiting" and (task.is_due or task.time == "over"):
        yield "the task is due", task._replace(status="queued", is_due=False)
    if task.status == "running" and not any(_owns(task, one) for one in task.handlers):
        yield "the reaper queues the task", task._replace(status="queued")
    for one in task.handlers:
        yield from _goes_on(rules, task, one)


def _goes_on(rules: WaitRules, task: Waiting, one: Handler) -> Iterator[tuple[str, Waiting]]:
    name = f"attempt {one.attempt}"
    if one.place in (BEGIN, RECORD):
        yield _runs_step(rules, task, one)
    elif one.place == TAKE:
        yield _takes(rules, task, one)
    elif one.place == SUSPEND:
        yield _suspends(rules, task, one)
    elif not _owns(task, one):
        yield f"{name} has lost the task", _gone(task, one)
    elif one.place == NOTE:
        yield f"{name} records signal {one.taken}", _at(task._replace(answer=one.taken), one, FINISH)
    else:
        yield f"{name} ends the task", _gone(task, one)._replace(status="done")


def _runs_step(rules: WaitRules, task: Waiting, one: Handler) -> tuple[str, Waiting]:
    name = f"attempt {one.attempt}"
    if one.place == BEGIN:
        if task.recorded and rules.knows_steps:
            return f"{name} finds the step", _at(task, one, TAKE)
        if 0 < task.recorded < one.attempt:
            raise Violation(f"{name} runs a step that attempt {task.recorded} has recorded")
        return f"{name} runs the step", _at(task, one, RECORD)
    if not _owns(task, one) and (rules.fences_steps or task.status != "running"):
        return f"{name} has lost the task", _gone(task, one)
    if not _owns(task, one):
        raise Violation(f"{name} records a step while attempt {task.attempt} runs")
    recorded = task._replace(recorded=task.recorded or one.attempt)  # the first value stays
    return f"{name} records the step", _at(recorded, one, TAKE)


def _takes(rules: WaitRules, task: Waiting, one: Handler) -> tuple[str, Waiting]:
    name = f"attempt {one.attempt}"
    if not _owns(task, one):
        return f"{name} has lost the task", _gone(task, one)
    if task.answer >= 0:
        return f"{name} finds what the wait has recorded", _at(task, one, FINISH)
    if task.signals:
        taken, left = task.signals[0], task._replace(signals=task.signals[1:])
        if not rules.takes_and_notes:
            return f"{name} takes signal {taken}", _at(left, one, NOTE, taken)
        return f"{name} takes signal {taken}", _at(left._replace(answer=taken), one, FINISH)
    if task.time == "over":
        return f"{name} records the time-out", _at(task._replace(answer=0), one, FINISH)
    return f"{name} finds no signal", _at(task, one, SUSPEND)


def _suspends(rules: WaitRules, task: Waiting, one: Handler) -> tuple[str, Waiting]:
    name = f"attempt {one.attempt}"
    if not _owns(task, one) and (rules.fences_waits or task.status != "running"):
        return f"{name} has lost the task", _gone(task, one)
    if not _owns(task, one):
        raise Violation(f"{name} lets the task wait while attempt {task.attempt} runs")
    waits = _gone(task, one)._replace(
        status="waiting",
        time="runs" if task.time == "none" else task.time,
        is_due=bool(task.signals) and rules.looks_again,
    )
    return f"{name} lets the task wait", waits


def _sent(task: Waiting) -> Waiting:
    sent = task._replace(sends=task.sends - 1, sent=task.sent + 1, signals=(*task.signals, task.sent + 1))
    return sent._replace(status="queued", is_due=False) if task.status == "waiting" else sent


def _faults(task: Waiting) -> Iterator[tuple[str, Waiting]]:
    if not task.faults:
        return
    hurt = task._replace(faults=task.faults - 1)
    for one in task.handlers:
        yield f"the worker of attempt {one.attempt} dies", _gone(hurt, one)
    if task.status == "running":
        yield "the lease runs out", hurt._replace(status="queued")


def _owns(task: Waiting, one: Handler) -> bool:
    return task.status == "running" and one.attempt == task.attempt


def _at(task: Waiting, one: Handler, place: str, taken: int = 0) -> Waiting:
    after = Handler(one.attempt, place, taken)
    return task._replace(handlers=tuple(after if other == one else other for other in task.handlers))


def _gone(task: Waiting, one: Handler) -> Waiting:
    return task._replace(handlers=tuple(other for other in task.handlers if other != one))
