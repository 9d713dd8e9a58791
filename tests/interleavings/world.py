"""Tasks, log, broker and workers together, and everything that may happen to them next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from grns.model.outcome import Verb
from grns.model.task import TERMINAL, Status
from tests.interleavings import row as statements
from tests.interleavings.row import Change, Row, Violation

GOT, RUNS = range(2)
EVENT, COMMAND = "e", "c"
_SLOTS = 2
_MOST_COPIES = 2
_VERBS = (Verb.SUCCEED, Verb.RETRY)


@dataclass(frozen=True)
class Rules:
    """How the protocol is built; each False is a way to build it wrongly."""

    fences_attempt: bool = True  # else the guard asks for the owner alone
    has_log: bool = True  # else messages are published after the commit, from memory
    has_floor: bool = True  # else a task runs only if its command arrives
    buries: bool = True  # else the reaper queues again however many attempts were spent
    has_new_ids: bool = True  # else a task's later commands carry the message id of the first


class Road(NamedTuple):
    """What is on its way for one task."""

    # Written, not published, in order. Nothing that can happen depends on when an event goes out,
    # so a log leaves them out; where there is none, they can be forgotten, and are here.
    log: str = ""
    copies: int = 0  # of its commands, in the stream
    is_known: bool = False  # does the broker remember the id of one of its commands?
    is_torn: bool = False  # a message of it is gone for good


class Hold(NamedTuple):
    """What a worker has in hand: a command, the attempt that came of it, and how far it is."""

    task: int
    stage: int
    attempt: int
    has_copy: bool


class World(NamedTuple):
    """Everything there is. A worker's holds are sorted, `faults` says how many may still happen."""

    rows: tuple[Row, ...]
    roads: tuple[Road, ...]
    workers: tuple[tuple[Hold, ...], ...]
    faults: int


Step = tuple[str, World]


def begin(tasks: int, workers: int, attempts: int, faults: int) -> World:
    """Return the world just after the tasks were submitted."""
    submitted = statements.submit(attempts)
    road = Road(log=COMMAND)
    return World((submitted.row,) * tasks, (road,) * tasks, ((),) * workers, faults)


def is_at_rest(world: World) -> bool:
    """Say whether all has come to its end, as it should: nothing runs, nothing is owed to anybody."""
    return all(row.status in TERMINAL for row in world.rows) and all(
        not road.log and not road.is_torn for road in world.roads
    )


def distance(world: World) -> int:
    """Return a number that each step without a fault makes smaller: there is no way round in circles."""
    far = 0
    for task, row in enumerate(world.rows):
        far += statements.distance(row)
        if row.lease:
            far += row.is_over if _is_held(world, task, row) else 2 - row.is_over
    for road in world.roads:
        far += 42 * len(road.log) + 21 * road.copies
    for holds in world.workers:
        for hold in holds:
            far += 19 - 5 * hold.stage + hold.has_copy
    return far


def steps(world: World, rules: Rules) -> Iterator[Step]:
    """Say what may happen next, if nothing goes wrong."""
    for task, road in enumerate(world.roads):
        if road.log:
            yield from _relay(world, rules, task)
    for worker, holds in enumerate(world.workers):
        if len(holds) < _SLOTS:
            yield from _take(world, rules, worker)
        for hold in holds:
            yield from _work(world, rules, worker, hold)
    for task, row in enumerate(world.rows):
        yield from _look_after(world, rules, task, row)


def faults(world: World, rules: Rules) -> Iterator[Step]:
    """Say what may go wrong next."""
    if not world.faults:
        return
    hurt = world._replace(faults=world.faults - 1)
    yield "the broker loses everything", _wipe(hurt)
    for worker, holds in enumerate(world.workers):
        if holds:
            yield f"worker {worker} dies", _kill(hurt, worker)
        for hold in holds:
            if hold.has_copy:  # with others in one message, of which some had no room
                yield f"worker {worker} gives back task {hold.task}", _given_back(hurt, worker, hold)
    for task, (row, road) in enumerate(zip(world.rows, world.roads, strict=True)):
        if road.is_known and road.copies < _MOST_COPIES:
            yield f"a command of task {task} comes again", _with_road(hurt, task, copies=road.copies + 1)
        if row.lease and not row.is_over and _is_held(world, task, row):
            yield f"the lease of task {task} runs out", _with_row(hurt, task, row._replace(is_over=True))
        if road.log and not rules.has_log:
            torn = _with_road(hurt, task, log="", is_torn=True)
            yield f"whoever owes messages of task {task} dies", torn


def _relay(world: World, rules: Rules, task: int) -> Iterator[Step]:
    road = world.roads[task]
    rest = road.log[1:]
    if road.log[0] != COMMAND:
        yield f"an event of task {task} is published", _with_road(world, task, log=rest)
    elif road.is_known and not rules.has_new_ids:
        raise Violation(f"the broker drops a new command of task {task}: it knows its id")
    else:
        sent = _with_road(world, task, log=rest, copies=road.copies + 1, is_known=True)
        yield f"a command of task {task} is published", sent


def _take(world: World, rules: Rules, worker: int) -> Iterator[Step]:
    for task, (row, road) in enumerate(zip(world.rows, world.roads, strict=True)):
        if road.copies:
            fetched = _with_road(world, task, copies=road.copies - 1)
            yield f"worker {worker} gets task {task}", _with_hold(fetched, worker, Hold(task, GOT, 0, True))
        if rules.has_floor and row.status is Status.QUEUED:
            change = statements.claim(row, worker + 1)
            if change is not None:
                claimed = _changed(world, rules, task, change)
                hold = Hold(task, RUNS, change.row.attempt, False)
                yield f"worker {worker} finds task {task}", _with_hold(claimed, worker, hold)


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
        if row.status is Status.RETRY_WAIT:
            yield f"worker {worker} acks what is not due", _without_hold(world, worker, hold)
    elif hold.has_copy:
        acked = _with_hold(_without_hold(world, worker, hold), worker, hold._replace(has_copy=False))
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
        if not rules.buries and statements.is_spent(row):
            change = statements.reap(row._replace(limit=row.limit + row.attempt)) or change
            change = Change(change.row._replace(limit=row.limit), change.line)
        yield f"task {task} is reaped", _changed(world, rules, task, change)
    if row.status is Status.RETRY_WAIT:
        due = statements.promote(row._replace(is_due=True))
        if due is not None:
            yield f"task {task} is promoted", _changed(world, rules, task, due)


def _due_claim(row: Row, lease: int) -> Change | None:
    """Claim a task whose time may have come: when that is, is nobody's to say."""
    if row.status is Status.RETRY_WAIT:
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
    messages = EVENT * (not rules.has_log) + COMMAND * bool(change.line.command)
    return _with_road(world, task, log=world.roads[task].log + messages) if messages else world


def _with_row(world: World, task: int, row: Row) -> World:
    return World((*world.rows[:task], row, *world.rows[task + 1 :]), *world[1:])


def _with_road(world: World, task: int, **changes: Any) -> World:
    road = world.roads[task]._replace(**changes)
    return World(world.rows, (*world.roads[:task], road, *world.roads[task + 1 :]), *world[2:])


def _with_hold(world: World, worker: int, hold: Hold) -> World:
    return _with_holds(world, worker, tuple(sorted((*world.workers[worker], hold))))


def _without_hold(world: World, worker: int, hold: Hold) -> World:
    holds = list(world.workers[worker])
    holds.remove(hold)
    return _with_holds(world, worker, tuple(holds))


def _with_holds(world: World, worker: int, holds: tuple[Hold, ...]) -> World:
    workers = (*world.workers[:worker], holds, *world.workers[worker + 1 :])
    return World(world.rows, world.roads, workers, world.faults)


def _return_copy(world: World, worker: int, hold: Hold) -> World:
    back = min(_MOST_COPIES, world.roads[hold.task].copies + hold.has_copy)
    return _with_road(_without_hold(world, worker, hold), hold.task, copies=back)


def _given_back(world: World, worker: int, hold: Hold) -> World:
    """Have a command come again, whose task may run here."""
    returned = _return_copy(world, worker, hold)
    return returned if hold.stage == GOT else _with_hold(returned, worker, hold._replace(has_copy=False))


def _kill(world: World, worker: int) -> World:
    """End a worker: what it had in hand is delivered again, and it comes back with empty hands."""
    for hold in world.workers[worker]:
        world = _return_copy(world, worker, hold)
    return world


def _wipe(world: World) -> World:
    roads = tuple(road._replace(copies=0, is_known=False) for road in world.roads)
    workers = tuple(tuple(sorted(hold._replace(has_copy=False) for hold in holds)) for holds in world.workers)
    return world._replace(roads=roads, workers=workers)
