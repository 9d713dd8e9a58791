"""Tasks, log, broker and workers together, and everything that may happen to them next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from grns.model.outcome import Verb
from grns.model.task import TERMINAL, TaskStatus
from tests.interleavings import row as statements
from tests.interleavings.explore import Model
from tests.interleavings.row import Change, Row, Violation

GOT, RUNS = range(2)
EVENT = 0
_SLOTS = 2
_MOST_COPIES = 2
_VERBS = (Verb.SUCCEED, Verb.RETRY)


@dataclass(frozen=True)
class Rules:
    """How the protocol is built; each False is a way to build it wrongly."""

    fences_attempt: bool = True  # else the guard asks for the owner alone
    has_log: bool = True  # else messages are published after the commit, from memory
    polls: bool = True  # else a task runs only if its command arrives
    ends_spent: bool = True  # else the reaper queues again however many attempts were spent
    has_new_ids: bool = True  # else a task's later commands carry the message id of the first
    has_hints: bool = True  # else no worker is told of what was queued; that is slower, and not wrong
    knows_hinted: bool = True  # else a worker takes any command of a hinted task for that of its hint


class Delivery(NamedTuple):
    """What is on its way for one task. A command is named by the attempt that it was queued for."""

    # Written, not published, in order. Nothing that can happen depends on when an event goes out,
    # so a log leaves them out; where there is none, they can be forgotten, and are here.
    log: tuple[int, ...] = ()
    copies: tuple[int, ...] = ()  # of its commands, in the stream
    known: int = 0  # the last command whose id the broker remembers
    is_torn: bool = False  # a message of it is gone for good
    has_hint: bool = False  # it was queued, and its hint has reached no worker


class Hold(NamedTuple):
    """What a worker has in hand: a command, the attempt that came of it, and how far it is."""

    task: int
    stage: int
    attempt: int
    copy: int  # the command that is not acknowledged yet; 0 where there is none
    is_hinted: bool = False  # the command of this attempt was not met yet


class World(NamedTuple):
    """Everything there is. A worker's holds are sorted, `faults` says how many may still happen."""

    rows: tuple[Row, ...]
    deliveries: tuple[Delivery, ...]
    workers: tuple[tuple[Hold, ...], ...]
    faults: int


Step = tuple[str, World]


def begin(tasks: int, workers: int, attempts: int, faults: int, *, has_hints: bool = True) -> World:
    """Return the world just after the tasks were submitted."""
    submitted = statements.submit(attempts)
    delivery = Delivery(log=(1,), has_hint=has_hints)
    return World((submitted.row,) * tasks, (delivery,) * tasks, ((),) * workers, faults)


def model(rules: Rules) -> Model[World]:
    """Return the model of a protocol that is built by `rules`."""
    return Model(partial(_steps, rules), partial(_faults, rules), _distance, _is_at_rest)


def _is_at_rest(world: World) -> bool:
    """Say whether all has come to its end, as it should: nothing runs, nothing is owed to anybody."""
    return all(row.status in TERMINAL for row in world.rows) and all(
        not delivery.log and not delivery.is_torn for delivery in world.deliveries
    )


def _distance(world: World) -> int:
    far = 0
    for task, row in enumerate(world.rows):
        far += statements.distance(row)
        if row.lease:
            far += row.is_over if _is_held(world, task, row) else 2 - row.is_over
    for delivery in world.deliveries:
        far += 42 * len(delivery.log) + 21 * len(delivery.copies) + delivery.has_hint
    for holds in world.workers:
        for hold in holds:
            far += 19 - 5 * hold.stage + bool(hold.copy)
    return far


def _steps(rules: Rules, world: World) -> Iterator[Step]:
    for task, delivery in enumerate(world.deliveries):
        if delivery.log:
            yield from _relay(world, rules, task)
    for worker, holds in enumerate(world.workers):
        if len(holds) < _SLOTS:
            yield from _take(world, rules, worker)
        for hold in holds:
            yield from _work(world, rules, worker, hold)
    for task, (row, delivery) in enumerate(zip(world.rows, world.deliveries, strict=True)):
        yield from _look_after(world, rules, task, row)
        if delivery.has_hint:
            yield f"nobody is told of task {task}", _with_delivery(world, task, has_hint=False)


def _faults(rules: Rules, world: World) -> Iterator[Step]:
    if not world.faults:
        return
    hurt = world._replace(faults=world.faults - 1)
    yield "the broker loses everything", _wipe(hurt)
    for worker, holds in enumerate(world.workers):
        if holds:
            yield f"worker {worker} dies", _kill(hurt, worker)
        for hold in holds:
            if hold.copy:  # with others in one message, of which some had no room
                yield f"worker {worker} gives back task {hold.task}", _given_back(hurt, worker, hold)
    for task, (row, delivery) in enumerate(zip(world.rows, world.deliveries, strict=True)):
        if delivery.known and len(delivery.copies) < _MOST_COPIES:
            copies = _with_copy(delivery.copies, delivery.known)
            yield f"a command of task {task} comes again", _with_delivery(hurt, task, copies=copies)
        if row.lease and not row.is_over and _is_held(world, task, row):
            yield f"the lease of task {task} runs out", _with_row(hurt, task, row._replace(is_over=True))
        if delivery.log and not rules.has_log:
            torn = _with_delivery(hurt, task, log=(), is_torn=True)
            yield f"whoever owes messages of task {task} dies", torn


def _relay(world: World, rules: Rules, task: int) -> Iterator[Step]:
    delivery = world.deliveries[task]
    command, rest = delivery.log[0], delivery.log[1:]
    if command == EVENT:
        yield f"an event of task {task} is published", _with_delivery(world, task, log=rest)
    elif delivery.known and not rules.has_new_ids:
        raise Violation(f"the broker drops a new command of task {task}: it knows its id")
    else:
        copies = tuple(sorted((*delivery.copies, command)))
        sent = _with_delivery(world, task, log=rest, copies=copies, known=command)
        yield f"command {command} of task {task} is published", sent


def _take(world: World, rules: Rules, worker: int) -> Iterator[Step]:
    for task, (row, delivery) in enumerate(zip(world.rows, world.deliveries, strict=True)):
        for command in set(delivery.copies):
            yield _met(world, rules, worker, task, command)
        change = statements.claim(row, worker + 1) if row.status is TaskStatus.QUEUED else None
        if delivery.has_hint:
            taken = _with_delivery(world, task, has_hint=False)
            if change is None:
                yield f"worker {worker} is told of task {task} too late", taken
            else:
                hold = Hold(task, RUNS, change.row.attempt, 0, is_hinted=True)
                claimed = _with_hold(_changed(taken, rules, task, change), worker, hold)
                yield f"worker {worker} is told of task {task} and claims it", claimed
        if rules.polls and change is not None:
            claimed = _changed(world, rules, task, change)
            hold = Hold(task, RUNS, change.row.attempt, 0)
            yield f"worker {worker} finds task {task}", _with_hold(claimed, worker, hold)


def _met(world: World, rules: Rules, worker: int, task: int, command: int) -> Step:
    """Give a command to a worker, which acknowledges that of a task it was told of without asking."""
    copies = list(world.deliveries[task].copies)
    copies.remove(command)
    fetched = _with_delivery(world, task, copies=tuple(copies))
    for hold in world.workers[worker]:
        if hold.task == task and hold.is_hinted and (hold.attempt == command or not rules.knows_hinted):
            if hold.attempt != command:
                raise Violation(
                    f"command {command} of task {task} is acked for that of attempt {hold.attempt}"
                )
            known = _with_hold(_without_hold(fetched, worker, hold), worker, hold._replace(is_hinted=False))
            return f"worker {worker} acks the command of task {task} that it was told of", known
    return f"worker {worker} gets task {task}", _with_hold(fetched, worker, Hold(task, GOT, 0, command))


def _work(world: World, rules: Rules, worker: int, hold: Hold) -> Iterator[Step]:
    task, row = hold.task, world.rows[hold.task]
    if hold.stage == GOT:
        change = _due_claim(row, worker + 1)
        if change is None:
            yield f"worker {worker} acks what it cannot claim", _without_hold(world, worker, hold)
            return
        running = hold._replace(stage=RUNS, attempt=change.row.attempt)
        yield (
            f"worker {worker} claims task {task}",
            _with_hold(_changed(_without_hold(world, worker, hold), rules, task, change), worker, running),
        )
        if row.status is TaskStatus.RETRY_WAIT:
            yield f"worker {worker} acks what is not due", _without_hold(world, worker, hold)
    elif hold.copy:
        acked = _with_hold(_without_hold(world, worker, hold), worker, hold._replace(copy=0))
        yield f"worker {worker} acks task {task}", acked
    else:
        yield from _end(world, rules, worker, hold)


def _end(world: World, rules: Rules, worker: int, hold: Hold) -> Iterator[Step]:
    task, row = hold.task, world.rows[hold.task]
    after = _without_hold(world, worker, hold)
    attempt = hold.attempt if rules.fences_attempt else row.attempt
    if not statements.owns(row, attempt, worker + 1):
        yield f"worker {worker} has lost task {task}", after
        return
    if hold.attempt != row.attempt:
        raise Violation(f"attempt {hold.attempt} of task {task} writes while attempt {row.attempt} runs")
    if row.is_over:
        yield f"worker {worker} renews task {task}", _with_row(world, task, statements.renew(row))
    for verb in _VERBS:
        yield (
            f"worker {worker}: {verb} of task {task}",
            _changed(after, rules, task, statements.finish(row, verb)),
        )


def _look_after(world: World, rules: Rules, task: int, row: Row) -> Iterator[Step]:
    if row.lease and not row.is_over and not _is_held(world, task, row):
        yield f"the lease of task {task} is over", _with_row(world, task, row._replace(is_over=True))
    change = statements.reap(row)
    if change is not None:
        if not rules.ends_spent and statements.is_spent(row):
            change = statements.reap(row._replace(limit=row.limit + row.attempt)) or change
            change = Change(change.row._replace(limit=row.limit), change.line)
        yield f"task {task} is reaped", _changed(world, rules, task, change)
    if row.status is TaskStatus.RETRY_WAIT:
        due = statements.promote(row._replace(is_due=True))
        if due is not None:
            yield f"task {task} is promoted", _changed(world, rules, task, due)


def _due_claim(row: Row, lease: int) -> Change | None:
    """Claim a task whose time may have come: when that is, is nobody's to say."""
    if row.status is TaskStatus.RETRY_WAIT:
        row = row._replace(is_due=True)
    return statements.claim(row, lease)


def _is_held(world: World, task: int, row: Row) -> bool:
    return any(
        hold.stage == RUNS and hold.attempt == row.attempt and hold.task == task
        for hold in world.workers[row.lease - 1]
    )


def _changed(world: World, rules: Rules, task: int, change: Change) -> World:
    if change.row.attempt - change.row.uncounted_attempts > change.row.limit:
        raise Violation(f"task {task} is at attempt {change.row.attempt} of {change.row.limit}")
    world = _with_row(world, task, change.row)
    delivery = world.deliveries[task]
    log = delivery.log if rules.has_log else (*delivery.log, EVENT)
    if change.line.command:
        return _with_delivery(world, task, log=(*log, change.row.attempt + 1), has_hint=rules.has_hints)
    return _with_delivery(world, task, log=log) if log != delivery.log else world


def _with_row(world: World, task: int, row: Row) -> World:
    return World((*world.rows[:task], row, *world.rows[task + 1 :]), *world[1:])


def _with_delivery(world: World, task: int, **changes: Any) -> World:
    delivery = world.deliveries[task]._replace(**changes)
    return World(world.rows, (*world.deliveries[:task], delivery, *world.deliveries[task + 1 :]), *world[2:])


def _with_hold(world: World, worker: int, hold: Hold) -> World:
    return _with_holds(world, worker, tuple(sorted((*world.workers[worker], hold))))


def _without_hold(world: World, worker: int, hold: Hold) -> World:
    holds = list(world.workers[worker])
    holds.remove(hold)
    return _with_holds(world, worker, tuple(holds))


def _with_holds(world: World, worker: int, holds: tuple[Hold, ...]) -> World:
    workers = (*world.workers[:worker], holds, *world.workers[worker + 1 :])
    return World(world.rows, world.deliveries, workers, world.faults)


def _with_copy(copies: tuple[int, ...], command: int) -> tuple[int, ...]:
    return tuple(sorted((*copies, command))) if len(copies) < _MOST_COPIES else copies


def _return_copy(world: World, worker: int, hold: Hold) -> World:
    after = _without_hold(world, worker, hold)
    if not hold.copy:
        return after
    return _with_delivery(after, hold.task, copies=_with_copy(world.deliveries[hold.task].copies, hold.copy))


def _given_back(world: World, worker: int, hold: Hold) -> World:
    """Have a command come again, whose task may run here."""
    returned = _return_copy(world, worker, hold)
    return returned if hold.stage == GOT else _with_hold(returned, worker, hold._replace(copy=0))


def _kill(world: World, worker: int) -> World:
    """End a worker: what it had in hand is delivered again, and it comes back with empty hands."""
    for hold in world.workers[worker]:
        world = _return_copy(world, worker, hold)
    return world


def _wipe(world: World) -> World:
    deliveries = tuple(delivery._replace(copies=(), known=0) for delivery in world.deliveries)
    workers = tuple(tuple(sorted(hold._replace(copy=0) for hold in holds)) for holds in world.workers)
    return world._replace(deliveries=deliveries, workers=workers)
