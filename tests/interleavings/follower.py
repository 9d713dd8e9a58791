"""A model of the follower: needs, ends, a log whose rows commit late, leaders that die or are overtaken.

Each transaction takes the number of its row when it writes, and commits later; the follower reads what is
committed, at one moment, and writes at another. Tasks 0 and 1 need nothing; task 2 needs both to succeed,
task 3 needs task 2 to succeed and task 0 to end. Or task 2 runs already, and joins both: it waits until they
have ended, looks again, and waits again where one was redriven. The rules are those of
`grns/workflows/sql/follow_log.sql` and of `grns.suspend_task`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tests.interleavings.explore import Model
from tests.interleavings.row import Violation

_ENDS = ("succeeded", "failed", "cancelled")
# What each task needs, and how that must end.
NEEDS: dict[int, tuple[tuple[int, str], ...]] = {
    2: ((0, "success"), (1, "success")),
    3: ((2, "success"), (0, "end")),
}
_EDGES = tuple((task, need, outcome) for task, needs in NEEDS.items() for need, outcome in needs)
_JOINER = 2
_JOINED = ((0, "end"), (1, "end"))

Statuses = tuple[str, ...]


@dataclass(frozen=True)
class FollowerRules:
    """How the follower is built; each False is a way to build it wrongly."""

    reads_rows: bool = True  # else it takes a task for what its event says
    waits_for_gaps: bool = True  # else it never reads a row that commits after a later one
    looks_back: bool = True  # else it looks at no need of what begins to wait
    keeps_later: bool = True  # else it forgets a task that was locked
    counts_turned: bool = True  # else it counts each end that it reads
    guards_cursor: bool = True  # else one that was overtaken writes, too
    brings_back: bool = True  # else what was cancelled for a need stays so when that is redriven
    refuses_stale: bool = True  # else what it counted is lost where a join has counted since it read
    decides_joins: bool = True  # else it decides a task that joins only when one of its tasks ends
    join_counts: bool = True  # else a join takes all of its tasks for open


class Reading(NamedTuple):
    """What a follower has read and decided, and not written."""

    rows: frozenset[int]
    turned: tuple[tuple[int, str], ...]  # edge and how its need is now; "" for open
    counted: tuple[tuple[int, int, int, int], ...]  # task, and what to add to its open, met and broken
    moves: tuple[tuple[int, str], ...]  # task and its next status
    settled: frozenset[int]  # of what was locked, what need not be looked at again
    stale: frozenset[int] = frozenset()  # tasks that another session has changed since


class Followed(NamedTuple):
    """Tasks, needs, log and follower."""

    status: Statuses  # "" before it is submitted
    is_ours: tuple[bool, ...]  # cancelled by the follower, which may take that back
    writing: tuple[tuple[int, str, int], ...] = ()  # uncommitted: task, its status then, number of the row
    log: tuple[tuple[int, str, bool], ...] = ()  # task, status, whether that was a redrive
    followed: frozenset[int] = frozenset()
    needs: Statuses = ()  # how each need has ended, as far as it is counted
    counts: tuple[tuple[int, int, int], ...] = ()  # open, met, broken of each task that needs others
    later: frozenset[int] = frozenset()
    reading: Reading | None = None
    old: Reading | None = None  # of a leader that was overtaken
    locked: int | None = None
    redrives: int = 0
    locks: int = 0
    faults: int = 0
    joined: bool | None = None  # whether task 2, which joins others, has done so; None if it does not


def begin_join(redrives: int, locks: int, faults: int) -> Followed:
    """Return the state in which tasks 0 and 1 are queued, and task 2 runs, which will join them."""
    return Followed(
        ("queued",) * 3, (False,) * 3, needs=("", ""), counts=((2, 0, 0),), redrives=redrives, locks=locks,
        faults=faults, joined=False,
    )  # fmt: skip


def begin_follower(tasks: int, redrives: int, locks: int, faults: int) -> Followed:
    """Return the state in which tasks 0 and 1 are queued, and one or two others are not submitted."""
    needs = [NEEDS[task] for task in range(2, tasks)]
    return Followed(
        ("queued", "queued", *[""] * len(needs)), (False,) * tasks, needs=("",) * sum(map(len, needs)),
        counts=tuple((len(one), 0, 0) for one in needs), redrives=redrives, locks=locks, faults=faults,
    )  # fmt: skip


def follower_model(rules: FollowerRules) -> Model[Followed]:
    """Return the model of a follower that is built by `rules`."""
    return Model(partial(_steps, rules), partial(_faults, rules), _distance, _is_at_rest)


def _is_at_rest(state: Followed) -> bool:
    if state.later or (state.counts != _recount(state) and state.joined is not False):
        return False
    if state.joined is not None:
        return state.status[_JOINER] == "succeeded"
    for task in range(2, len(state.status)):
        verdict = _verdict(state.counts[task - 2], len(NEEDS[task]))
        if (state.status[task] == "cancelled") != (verdict == "cancelled") or state.status[task] == "waiting":
            return False
    return True


def _recount(state: Followed) -> tuple[tuple[int, int, int], ...]:
    """Return the counts as the tasks are now."""
    found = []
    for needs in [_needs_of(state, task) for task in range(2, len(state.status))]:
        ends = [(outcome, state.status[need]) for need, outcome in needs]
        over = [(outcome, status) for outcome, status in ends if status in _ENDS]
        met = sum(_is_met(outcome, status) for outcome, status in over)
        found.append((len(ends) - len(over), met, len(over) - met))
    return tuple(found)


def _needs_of(state: Followed, task: int) -> tuple[tuple[int, str], ...]:
    return NEEDS.get(task, ()) if state.joined is None else _JOINED if task == _JOINER else ()


def _distance(state: Followed) -> int:
    """Return a number that only falls: states are finite in number, so it does not fall for ever."""
    done = 1000 * len(state.log) + 10 * (len(state.log) - len(state.writing)) + 100 * len(state.followed)
    done -= 20 * state.locks + 10 * (state.locked is not None) + 5 * len(state.later)
    return -done - sum(one is not None for one in (state.reading, state.old))


def _has_use(reading: Reading) -> bool:
    return bool(reading.rows or reading.settled) or any(
        task not in reading.stale for task, _ in reading.moves
    )


def _steps(rules: FollowerRules, state: Followed) -> Iterator[tuple[str, Followed]]:
    for task, status in enumerate(state.status):
        if task == _JOINER and state.joined is not None:
            yield from _join_steps(state)
        elif not _is_held(state, task):
            yield from _written_steps(state, task, status)
    if state.locked is not None:
        yield "the other session ends", state._replace(locked=None)
    for one in state.writing:
        yield f"task {one[0]} is committed as {one[1]}", _committed(rules, state, one)
    if state.reading is None:
        reading = _read(rules, state)
        if reading is not None:
            yield f"the follower reads {sorted(reading.rows)}", state._replace(reading=reading)
    elif not _waits_for_join(state, state.reading):
        yield "it writes", _applied(rules, state, state.reading)._replace(reading=None)
    if state.old is not None and rules.guards_cursor and not _waits_for_join(state, state.old):
        yield "the old one writes", _applied(rules, state._replace(old=None), state.old)


def _join_steps(state: Followed) -> Iterator[tuple[str, Followed]]:
    """Yield what the task that joins others does, and what another session does to it."""
    if state.status[_JOINER] == "queued" and not _is_held(state, _JOINER):
        if all(state.status[need] in _ENDS for need, _ in _JOINED):
            ended = state._replace(log=(*state.log, (_JOINER, "succeeded", False)))
            yield "task 2 finds that all have ended", _moved(ended, _JOINER, "succeeded", is_ours=False)
        else:
            yield "task 2 joins", _written(state, _JOINER, "waiting")
    if state.status[_JOINER] == "waiting" and state.locks and state.locked is None:
        locked = state._replace(locked=_JOINER, locks=state.locks - 1)
        yield f"another session locks task {_JOINER}", _noted(locked, _JOINER)


def _waits_for_join(state: Followed, reading: Reading) -> bool:
    """Return whether a join, which has the row locked, counts anew what a follower has counted."""
    joins = state.joined is not None and any(task == _JOINER for task, _, _ in state.writing)
    return joins and _counts_joiner(reading)


def _counts_joiner(reading: Reading) -> bool:
    return any(task == _JOINER for task, *_ in (*reading.counted, *reading.moves))


def _written_steps(state: Followed, task: int, status: str) -> Iterator[tuple[str, Followed]]:
    """Yield what sessions of others do to a task."""
    if status == "" and all(state.status[need] for need, _ in NEEDS[task]):
        yield f"task {task} is written", _written(state, task, "waiting")
    if status == "queued":
        for end in ("succeeded", "failed"):
            yield f"task {task} is written as {end}", _written(state, task, end)
    if status == "failed" and state.redrives:
        redriven = _written(state._replace(redrives=state.redrives - 1), task, "queued", is_redrive=True)
        yield f"task {task} is redriven", _committed(FollowerRules(), redriven, redriven.writing[-1])
    if status == "waiting" and state.locks and state.locked is None:
        locked = state._replace(locked=task, locks=state.locks - 1)
        yield f"another session locks task {task}", _noted(locked, task)


def _is_held(state: Followed, task: int) -> bool:
    """Return whether another session has a task's row."""
    return task == state.locked or any(task == one for one, _, _ in state.writing)


def _faults(rules: FollowerRules, state: Followed) -> Iterator[tuple[str, Followed]]:
    if state.old is not None and not rules.guards_cursor and state.reading is None:
        yield "the old one writes", _applied(rules, state._replace(old=None), state.old)
    if not state.faults:
        return
    hurt = state._replace(faults=state.faults - 1)
    if state.reading is None:
        for number in state.followed:
            yield f"row {number} is to be read again", hurt._replace(followed=state.followed - {number})
        return
    yield "the follower dies", hurt._replace(reading=None)
    if state.old is None:
        overtaken = hurt._replace(reading=None, old=state.reading)
        yield "another one leads, and the old one does not know", overtaken


def _written(state: Followed, task: int, status: str, *, is_redrive: bool = False) -> Followed:
    writing = (*state.writing, (task, status, len(state.log)))
    return _noted(state._replace(writing=writing, log=(*state.log, (task, status, is_redrive))), task)


def _committed(rules: FollowerRules, state: Followed, one: tuple[int, str, int]) -> Followed:
    task, status, _ = one
    after = state._replace(writing=tuple(other for other in state.writing if other != one))
    if state.joined is not None and task == _JOINER:
        after = _joined(rules, after)
    return _moved(after, task, status, is_ours=False)


def _joined(rules: FollowerRules, state: Followed) -> Followed:
    """Return the state once a join has counted what it waits for, as far as the follower has read."""
    ended = sum(bool(word) for word in state.needs) if rules.join_counts else 0
    after = state._replace(counts=((len(_JOINED) - ended, ended, 0),), joined=True)
    kept = [_refused(rules, one) for one in (state.reading, state.old)]
    return after._replace(reading=kept[0], old=kept[1])


def _refused(rules: FollowerRules, reading: Reading | None) -> Reading | None:
    """Return what is left of a reading once a join has replaced the row that it counted in."""
    if reading is None or not _counts_joiner(reading):
        return reading
    if rules.refuses_stale:
        return None
    counted = tuple(one for one in reading.counted if one[0] != _JOINER)
    moves = tuple(one for one in reading.moves if one[0] != _JOINER)
    return reading._replace(counted=counted, moves=moves)


def _moved(state: Followed, task: int, status: str, *, is_ours: bool) -> Followed:
    statuses, ours = list(state.status), list(state.is_ours)
    statuses[task], ours[task] = status, is_ours
    return state._replace(status=tuple(statuses), is_ours=tuple(ours))


def _noted(state: Followed, task: int) -> Followed:
    """Let what followers have decided of a task be old; a reading of which nothing is left is given up."""
    kept = []
    for one in (state.reading, state.old):
        aged = one and one._replace(stale=one.stale | {task})
        kept.append(aged if aged is not None and _has_use(aged) else None)
    return state._replace(reading=kept[0], old=kept[1])


def _read(rules: FollowerRules, state: Followed) -> Reading | None:
    """Return what there is to do, as all is at this moment; None if there is nothing."""
    uncommitted = {number for _, _, number in state.writing}
    rows = frozenset(range(len(state.log))) - state.followed - uncommitted
    can_retry = frozenset(task for task in state.later if not _is_held(state, task))
    if not rows and not can_retry:
        return None
    turned, added = _turned(rules, state, _touched(rules, state, rows))
    counted = tuple((task, *numbers) for task, numbers in added.items() if any(numbers))
    decided = can_retry.union(task for task, *_ in counted)
    if state.joined and rules.decides_joins and any(state.log[number][0] == _JOINER for number in rows):
        decided |= {_JOINER}
    moves = tuple(_moves(rules, state, decided, added))
    passed = rows if rules.waits_for_gaps else frozenset(range(max(rows, default=-1) + 1)) - state.followed
    return Reading(passed, turned, counted, moves, can_retry.difference(task for task, _ in moves))


def _touched(rules: FollowerRules, state: Followed, rows: frozenset[int]) -> dict[int, str]:
    """Return the tasks that have ended or were opened again, and the needs of those that began to wait."""
    touched: dict[int, str] = {}
    for number in sorted(rows):
        task, status, is_redrive = state.log[number]
        if status in _ENDS or is_redrive:
            touched[task] = status
        if status == "waiting" and rules.looks_back:
            touched |= {need: state.status[need] for need, _ in _needs_of(state, task)}
    return touched


def _turned(
    rules: FollowerRules, state: Followed, touched: dict[int, str]
) -> tuple[tuple[tuple[int, str], ...], dict[int, tuple[int, int, int]]]:
    """Return how needs are now that were otherwise, and what that adds to the counts of tasks."""
    turned, added = [], {task: [0, 0, 0] for task in range(2, len(state.status))}
    for edge, (task, need, outcome) in enumerate(_edges_of(state)):
        # its row may not be to be seen yet
        if need not in touched or not state.status[task] or state.joined is False:
            continue
        status = state.status[need] if rules.reads_rows else touched[need]
        before, now = state.needs[edge], status if status in _ENDS else ""
        if before != now or (now and not rules.counts_turned):
            turned.append((edge, now))
            added[task][_place(outcome, before if rules.counts_turned else "")] -= 1
            added[task][_place(outcome, now)] += 1
    return tuple(turned), {task: (one, two, three) for task, (one, two, three) in added.items()}


def _edges_of(state: Followed) -> tuple[tuple[int, int, str], ...]:
    if state.joined is None:
        return _EDGES[: len(state.needs)]
    return tuple((_JOINER, need, outcome) for need, outcome in _JOINED)


def _moves(
    rules: FollowerRules, state: Followed, decided: frozenset[int], added: dict[int, tuple[int, int, int]]
) -> Iterator[tuple[int, str]]:
    for task in sorted(decided):
        opened, met, broken = (sum(pair) for pair in zip(state.counts[task - 2], added[task], strict=True))
        verdict = _verdict((opened, met, broken), len(_needs_of(state, task)))
        is_ended = state.status[task] == "cancelled" and state.is_ours[task] and rules.brings_back
        if (state.status[task] == "waiting" and verdict != "waiting") or (
            is_ended and verdict != "cancelled"
        ):
            yield task, verdict


def _applied(rules: FollowerRules, state: Followed, reading: Reading) -> Followed:
    needs, counts = list(state.needs), list(state.counts)
    for edge, word in reading.turned:
        needs[edge] = word
    for task, opened, met, broken in reading.counted:
        old = counts[task - 2]
        counts[task - 2] = (old[0] + opened, old[1] + met, old[2] + broken)
    after = state._replace(
        needs=tuple(needs), counts=tuple(counts), followed=state.followed | reading.rows,
        later=state.later - reading.settled,
    )  # fmt: skip
    if rules.guards_cursor:  # whoever has read before finds the cursor moved
        after = after._replace(reading=None, old=None)
    for task, target in reading.moves:
        is_held = (
            task == state.locked or task in reading.stale or any(task == one for one, _, _ in state.writing)
        )
        if is_held:
            after = after._replace(later=after.later | {task}) if rules.keeps_later else after
            continue
        _check(state, task, target)
        after = _moved(after, task, target, is_ours=target == "cancelled")
        after = _noted(after, task)._replace(
            log=(*after.log, (task, target, state.status[task] == "cancelled")), later=after.later - {task}
        )
    return after


def _check(state: Followed, task: int, target: str) -> None:
    if target == "queued":
        for need, outcome in _needs_of(state, task):
            # One that is redriven just now is found open by the handler, which waits again.
            was_redriven = state.joined and any(one == need and again for one, _, again in state.log)
            if not was_redriven and not _is_met(outcome, state.status[need]):
                raise Violation(
                    f"task {task} is queued, and task {need}, which it needs, is {state.status[need]}"
                )
    if target == "queued" and state.status[task] not in ("waiting", "cancelled"):
        raise Violation(f"task {task} is queued, and was {state.status[task]}")


def _is_met(outcome: str, status: str) -> bool:
    return status == "succeeded" or (outcome == "end" and status in _ENDS)


def _place(outcome: str, word: str) -> int:
    """Return which count a need belongs to: 0 open, 1 met, 2 broken."""
    return 0 if not word else 1 if _is_met(outcome, word) else 2


def _verdict(counts: tuple[int, int, int], required: int) -> str:
    if counts[1] >= required:
        return "queued"
    return "waiting" if counts[1] + counts[0] >= required else "cancelled"
