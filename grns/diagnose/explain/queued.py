"""Why a queued task is not claimed: what stands in its way, in the order in which it has to go."""

from __future__ import annotations

from collections.abc import Iterator

from grns.diagnose.explain.cause import Cause
from grns.diagnose.explain.snapshot import PauseSeen, TaskSnapshot
from grns.diagnose.explain.wording import because, clock, counted, short
from grns.model import subjects
from grns.text import lasted

# So late is what ticks every second or two: it is away, or cannot keep up.
LATE_SECONDS = 5.0
# The floor's poll pauses for 10 s at most: what has room for longer than that and takes nothing has trouble.
_PATIENCE_SECONDS = 30.0
_MOST_TYPES = 8
_MEANWHILE = "workers that have room ask Postgres meanwhile"


def obstacles(seen: TaskSnapshot) -> list[Cause]:
    """Return why a queued task does not run; the first is what has to change before the others matter."""
    waited = f"queued for {lasted(seen.since(seen.task.queued_at))}"
    in_the_way = [*standing(seen), *_locked(seen), *_backlog(seen)]
    reasons = [*in_the_way, *_commands(seen)]
    if not in_the_way:  # commands are made up for: see the floor
        reasons += _room(seen, is_alone=not reasons)
    first = reasons[0]
    return [Cause(first.word, f"{waited}: {first.sentence}", first.next_steps), *reasons[1:]]


def standing(seen: TaskSnapshot) -> list[Cause]:
    """Return what keeps everything like this task from being claimed: pauses, and that nobody serves it."""
    return [*(_paused(seen, one) for one in seen.pauses), *_nobody(seen)]


def _paused(seen: TaskSnapshot, pause: PauseSeen) -> Cause:
    pool = seen.task.agent_type
    what = f"the pool {pool}" if pause.task_type is None else f"{pause.task_type} of the pool {pool}"
    until = "until it is resumed" if pause.left_seconds is None else f"for {lasted(pause.left_seconds)} yet"
    since = clock(pause.paused_at, seen.now)
    option = "" if pause.task_type is None else f" --type {pause.task_type}"
    return Cause(
        "paused",
        f"{what} is paused by {pause.paused_by} since {since}, {until}{because(pause.reason)}",
        (f"grns pool resume {pool}{option}",),
    )


def _nobody(seen: TaskSnapshot) -> Iterator[Cause]:
    stats, task = seen.stats, seen.task
    if not stats.workers:
        if stats.silent_workers and stats.silent_seconds is not None:
            known = f"{counted(stats.silent_workers, 'worker')} of it did not end in order"
            ago = f"{known}, and the last one was heard of {lasted(stats.silent_seconds)} ago"
        else:
            ago = "none of its workers is known"
        yield Cause("no_worker", f"no worker of the pool {task.agent_type} is up: {ago}", ("grns pool list",))
    elif not stats.serving:
        types = ", ".join(stats.task_types[:_MOST_TYPES]) + (
            ", …" if len(stats.task_types) > _MOST_TYPES else ""
        )
        known = f"they have {types}" if types else "they have none at all"
        yield Cause(
            "no_handler",
            f"no worker of the pool {task.agent_type} has a handler for {task.task_type} (of {stats.workers}"
            f" that are up; {known}): it waits for one that has, and spends no attempt",
            ("grns pool list",),
        )


def _locked(seen: TaskSnapshot) -> Iterator[Cause]:
    """Say that its row is somebody's: not what our own statements hold for a moment."""
    lock = seen.lock
    if lock is None or (lock.seconds is not None and lock.seconds < 1):
        return
    name = "" if lock.name is None else f", {short(lock.name)}"
    who = "" if lock.pid is None else f" (process {lock.pid} of Postgres{name})"
    since = "" if lock.seconds is None else f" for {lasted(lock.seconds)}"
    yield Cause(
        "locked",
        f"a transaction that is open{since} has touched its row{who}: claims pass over what is locked",
    )


def _backlog(seen: TaskSnapshot) -> Iterator[Cause]:
    stats = seen.stats
    if not stats.serving or stats.free:
        return
    before = counted(seen.ahead.count, "task", has_more=seen.ahead.has_more)
    first = f"{before} of the pool {'comes' if seen.ahead.count == 1 else 'come'} first"
    yield Cause(
        "backlog",
        f"all {counted(stats.slots, 'slot')} of the {counted(stats.serving, 'worker')} that serve it are"
        f" taken, and {first if seen.ahead.count else 'it is the next'}",
        ("grns pool list", f"grns task edit {seen.task.id} --priority 0  (to have it run sooner)"),
    )


def _commands(seen: TaskSnapshot) -> Iterator[Cause]:
    """Say what became of its command: workers that have room find the task all the same, a little later."""
    pulse, lane = seen.pulse, seen.lane
    if not pulse.is_published and (pulse.lag_seconds > LATE_SECONDS or not pulse.relay_has_leader):
        who = "a relay leads" if pulse.relay_has_leader else "no relay leads"
        lag = f"the oldest row of the log that is not published is {lasted(pulse.lag_seconds)} old"
        yield Cause(
            "not_published",
            f"its command is not published yet: {lag}, and {who}; {_MEANWHILE}",
            ("grns daemon relay",) if not pulse.relay_has_leader else ("grns doctor",),
        )
    if seen.trouble is not None:
        yield Cause(
            "broker_away",
            f"the broker could not be asked ({short(seen.trouble)}); {_MEANWHILE}",
            ("grns doctor",),
        )
    if lane is not None:
        yield from _lane(seen)


def _lane(seen: TaskSnapshot) -> Iterator[Cause]:
    lane, task = seen.lane, seen.task
    if lane is None or not seen.stats.serving:
        return
    name = subjects.priority_subject(task.workspace, task.agent_type, task.priority)
    if lane.paused_seconds > 0 and not seen.pauses:
        yield Cause(
            "lane_paused",
            f"the durable of its lane {name} is paused at the broker for {lasted(lane.paused_seconds)} yet;"
            f" {_MEANWHILE}",
            ("grns admin broker info",),
        )
    elif not lane.exists or (not lane.fetching and not lane.ack_pending and seen.stats.free):
        what = "has no durable" if not lane.exists else "is fetched from by nobody"
        yield Cause(
            "not_fetched",
            f"its lane {name} {what} at the broker; {_MEANWHILE}",
            ("grns admin broker info",),
        )


def _room(seen: TaskSnapshot, *, is_alone: bool) -> Iterator[Cause]:
    stats, waited = seen.stats, seen.since(seen.task.queued_at)
    room = f"{stats.free} of {counted(stats.slots, 'slot')} that serve it are free"
    if waited > _PATIENCE_SECONDS:
        yield Cause(
            "undelivered",
            f"{room}, and nobody has taken it: every 10 s workers ask Postgres for what no command tells them"
            " of, so these do not, or what they said of themselves is old",
            ("grns verify", "grns doctor"),
        )
    elif is_alone:
        yield Cause("on_its_way", f"{room}, and its command is on its way")
