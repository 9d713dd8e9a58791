"""Why a queued task is not claimed: the obstacles, in the order in which they must change."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from grns.diagnose.explain.cause import Cause
from grns.diagnose.explain.phrases import because, clock, counted, short
from grns.diagnose.explain.routed import routed
from grns.diagnose.explain.snapshot import PauseSeen, TaskSnapshot
from grns.model import subjects
from grns.model.text import lasted

# A daemon that runs every second or two is late after this time.
LATE_SECONDS = 5.0
# Fallback polling pauses for at most 10 s: a worker with free slots that claims nothing for longer hangs.
_PATIENCE_SECONDS = 30.0
_MOST_TYPES = 8
_MEANWHILE = "workers with free slots claim from Postgres meanwhile"


def obstacles(seen: TaskSnapshot) -> list[Cause]:
    """Return why a queued task does not run; the first cause must change before the others matter."""
    waited = f"queued for {lasted(seen.since(seen.task.queued_at))}"
    if seen.is_routed:  # it has no command
        in_the_way = [*standing(seen), *_locked(seen), *routed(seen)]
        reasons = in_the_way or list(_expected(seen))
    else:
        in_the_way = [*standing(seen), *_locked(seen), *_backlog(seen)]
        reasons = [*in_the_way, *_commands(seen)]
    if not in_the_way and not seen.is_routed:  # fallback polling replaces missing commands
        reasons += _room(seen, is_alone=not reasons)
    first = reasons[0]
    return [Cause(first.word, f"{waited}: {first.sentence}", first.next_steps), *reasons[1:]]


def _expected(seen: TaskSnapshot) -> Iterator[Cause]:
    if seen.since(seen.task.queued_at) > _PATIENCE_SECONDS:
        yield Cause(
            "undelivered",
            "an agent that may run it is there and has room: it polls Postgres every 10 s, so it hangs",
            ("grns admin verify", "grns doctor"),
        )
    else:
        yield Cause("on_its_way", "an agent that may run it has room, and is about to look for it")


def standing(seen: TaskSnapshot) -> list[Cause]:
    """Return the causes that hold for all tasks of this type: pauses, and missing workers or handlers."""
    return [*(_paused(seen, one) for one in seen.pauses), *_unserved(seen)]


def _paused(seen: TaskSnapshot, pause: PauseSeen) -> Cause:
    pool = seen.task.agent_type
    what = f"the pool {pool}" if pause.task_type is None else f"{pause.task_type} of the pool {pool}"
    until = "with no end time" if pause.left_seconds is None else f"for {lasted(pause.left_seconds)} more"
    since = clock(pause.paused_at, seen.now)
    if pause.budget is not None:
        return Cause(
            "paused",
            f"{what} was paused at {since}, until more of the budget {pause.budget} is allowed",
            (f"grns pool budget show {pause.budget}", f"grns pool budget allow {pause.budget} --cost 10"),
        )
    option = "" if pause.task_type is None else f" --type {pause.task_type}"
    return Cause(
        "paused",
        f"{what} was paused by {pause.paused_by} at {since}, {until}{because(pause.reason)}",
        (f"grns pool resume {pool}{option}",),
    )


def _unserved(seen: TaskSnapshot) -> Iterator[Cause]:
    stats, task = seen.stats, seen.task
    if not stats.workers:
        if stats.silent_workers and stats.silent_seconds is not None:
            known = f"{counted(stats.silent_workers, 'worker')} stopped sending heartbeats"
            ago = f"{known}, the last one {lasted(stats.silent_seconds)} ago"
        else:
            ago = "none was started, or all were shut down"
        sentence = f"the pool {task.agent_type} has no live worker: {ago}{_elsewhere(seen)}"
        yield Cause(
            "no_worker", sentence, _moves(seen) or ("grns worker start MODULE:POOL", "grns pool list")
        )
    elif not stats.serving:
        types = ", ".join(stats.task_types[:_MOST_TYPES]) + (
            ", …" if len(stats.task_types) > _MOST_TYPES else ""
        )
        known = f"they have {types}" if types else "they have none"
        yield Cause(
            "no_handler",
            f"no worker of the pool {task.agent_type} has a handler for {task.task_type} ({stats.workers}"
            f" live; {known}){_meant(seen)}: the task waits for one and uses no attempt{_elsewhere(seen)}",
            _moves(seen) or ("grns pool list",),
        )


def _meant(seen: TaskSnapshot) -> str:
    """Return the handled task type that is spelled nearly as the task's is."""
    near = difflib.get_close_matches(seen.task.task_type, seen.stats.task_types, n=1)
    return f", did you mean {near[0]}?" if near and not seen.stats.served_by else ""


def _elsewhere(seen: TaskSnapshot) -> str:
    """Return which other pools have a handler for the task's type: it was perhaps meant for one of them."""
    if not seen.stats.served_by:
        return ""
    pools = " and ".join(seen.stats.served_by)
    return f"; {seen.task.task_type} has a handler in {pools}, and a task cannot change its pool"


def _moves(seen: TaskSnapshot) -> tuple[str, ...]:
    """Return the commands that replace a task by one in the pool that has its handler."""
    if not seen.stats.served_by:
        return ()
    task = seen.task
    return (
        f"grns task submit {task.task_type} --pool {seen.stats.served_by[0]} --payload JSON",
        f"grns task cancel {task.id}",
    )


def _locked(seen: TaskSnapshot) -> Iterator[Cause]:
    """Yield a cause if another session locks the row for longer than our own statements do."""
    lock = seen.lock
    if lock is None or (lock.seconds is not None and lock.seconds < 1):
        return
    name = "" if lock.name is None else f", {short(lock.name)}"
    who = "" if lock.pid is None else f" (process {lock.pid} of Postgres{name})"
    since = "" if lock.seconds is None else f", open for {lasted(lock.seconds)},"
    yield Cause(
        "locked",
        f"another transaction{since} locks its row{who}: claims skip locked rows",
    )


def _backlog(seen: TaskSnapshot) -> Iterator[Cause]:
    stats = seen.stats
    if not stats.serving or stats.free:
        return
    before = counted(seen.ahead.count, "task", has_more=seen.ahead.has_more)
    first = f"{before} of the pool {'runs' if seen.ahead.count == 1 else 'run'} first"
    yield Cause(
        "backlog",
        f"all {counted(stats.slots, 'slot')} of {counted(stats.serving, 'worker')} with its handler are"
        f" taken, and {first if seen.ahead.count else 'it is the next'}",
        ("grns pool list", f"grns task edit {seen.task.id} --priority 0  (to run it sooner)"),
    )


def _commands(seen: TaskSnapshot) -> Iterator[Cause]:
    """Yield problems of its command. Workers with free slots claim the task from Postgres a little later."""
    pulse, subject = seen.pulse, seen.subject
    if not pulse.is_published and (pulse.lag_seconds > LATE_SECONDS or not pulse.relay_has_leader):
        who = "a relay is running" if pulse.relay_has_leader else "no relay is running"
        lag = f"the oldest unpublished event is {lasted(pulse.lag_seconds)} old"
        yield Cause(
            "not_published",
            f"its command is not published yet: {lag}, and {who}; {_MEANWHILE}",
            ("grns daemon relay",) if not pulse.relay_has_leader else ("grns doctor",),
        )
    if seen.trouble is not None:
        yield Cause(
            "broker_away",
            f"the broker did not answer ({short(seen.trouble)}); {_MEANWHILE}",
            ("grns doctor",),
        )
    if subject is not None:
        yield from _subject(seen)


def _subject(seen: TaskSnapshot) -> Iterator[Cause]:
    subject, task = seen.subject, seen.task
    if subject is None or not seen.stats.serving:
        return
    name = subjects.priority_subject(task.workspace, task.agent_type, task.priority)
    if subject.paused_seconds > 0 and not seen.pauses:
        yield Cause(
            "subject_paused",
            f"the durable consumer of its subject {name} is paused for {lasted(subject.paused_seconds)} more;"
            f" {_MEANWHILE}",
            ("grns admin broker info",),
        )
    elif not subject.exists or (not subject.fetching and not subject.ack_pending and seen.stats.free):
        what = "has no durable consumer" if not subject.exists else "has a durable consumer without clients"
        yield Cause(
            "not_fetched",
            f"its subject {name} {what}; {_MEANWHILE}",
            ("grns admin broker info",),
        )


def _room(seen: TaskSnapshot, *, is_alone: bool) -> Iterator[Cause]:
    stats, waited = seen.stats, seen.since(seen.task.queued_at)
    room = f"{stats.free} of {counted(stats.slots, 'slot')} with its handler are free"
    if waited > _PATIENCE_SECONDS:
        yield Cause(
            "undelivered",
            f"{room}, and no worker has claimed it: workers poll Postgres every 10 s, so these workers hang,"
            " or their heartbeats are old",
            ("grns admin verify", "grns doctor"),
        )
    elif is_alone:
        yield Cause("on_its_way", f"{room}, and its command is being delivered")
