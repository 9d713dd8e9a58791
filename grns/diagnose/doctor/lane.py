"""Lanes: whether their durables fit the workers that fetch from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from grns.diagnose.doctor.finding import Finding, Severity, error, note, or_ok, warning
from grns.diagnose.doctor.snapshot import Snapshot, WorkerStats
from grns.errors import InvalidInputError
from grns.model import subjects
from grns.text import lasted

if TYPE_CHECKING:
    from grns.nats.report import DurableReport

# Workers send a sign of life this many times in each `ack_wait`, and the broker's is this at most.
_SIGNS = 3
_LONGEST_ACK_WAIT_SECONDS = 30.0
_CROWDED = 0.9
_MOST_NAMED = 5


class SubjectState(NamedTuple):
    """A durable of commands, and the workers of the pool that it is of, if there are any."""

    name: str
    durable: DurableReport
    stats: WorkerStats | None


def lanes(read: Snapshot) -> list[SubjectState]:
    """Return the lanes that the broker has durables for, with their workers."""
    if read.broker is None:
        return []
    workers_by_pool = {(stats.workspace, stats.agent_type): stats for stats in read.workers_by_pool or ()}
    prefix, stream = read.settings.nats_prefix, read.settings.nats_prefix + subjects.CMD_STREAM
    found = []
    for durable in (
        one for report in read.broker.streams if report.name == stream for one in report.durables
    ):
        for subject in durable.subjects:
            name = subject.removeprefix(prefix)
            pool = _pool_of(name)
            if pool is not None:
                found.append(SubjectState(name, durable, workers_by_pool.get(pool)))
    return found


def _pool_of(subject: str) -> tuple[str, str] | None:
    """Return the workspace and the agent type of a lane; None where it is none."""
    try:
        parsed = subjects.parse(subject)
    except InvalidInputError:
        return None
    if parsed.kind != subjects.EXECUTE or len(parsed.routing) != 3:
        return None
    return parsed.routing[0], parsed.routing[1]


def check_lanes(read: Snapshot) -> Sequence[Finding]:
    """Return which lanes of live workers have no durable: what is sent there waits for the workers' poll."""
    prefix = read.settings.nats_prefix
    streams = read.broker.streams if read.broker is not None else ()
    if not any(stream.exists and stream.name == prefix + subjects.CMD_STREAM for stream in streams):
        return []
    return or_ok("lanes", _few(list(_missing(read))), "each lane of live workers has its durable")


def _missing(read: Snapshot) -> Iterator[Finding]:
    there = {lane.name for lane in lanes(read)}
    for stats in read.workers_by_pool or ():
        wanted = [
            subjects.priority_subject(stats.workspace, stats.agent_type, priority)
            for priority in subjects.PRIORITIES
        ]
        missing = [name for name in wanted if name not in there]
        if stats.workers and missing:
            yield warning(
                "lanes",
                f"{len(missing)} of {len(wanted)} lanes of {stats.agent_type} have no durable, as"
                f" {missing[0]}: workers find their tasks in Postgres alone, more slowly",
                "workers make them when they start: their log says what keeps them from it",
            )


def check_ack_wait(read: Snapshot) -> Sequence[Finding]:
    """Return where the broker waits too short for workers that are slow to say that they live.

    They do so each third of what they take for `ack_wait`: their lease, or half a minute where that is less.
    """
    if read.broker is None:
        return []
    return or_ok("ack_wait", _few([*_ack_wait(read), *_leases(read)]), "signs of life come well within it")


def _ack_wait(read: Snapshot) -> Iterator[Finding]:
    for lane in lanes(read):
        lease = None if lane.stats is None else lane.stats.longest_lease_seconds
        if lease is None:
            continue
        pause = min(_LONGEST_ACK_WAIT_SECONDS, lease) / _SIGNS
        wait = lane.durable.ack_wait_seconds
        signs = f"its workers say each {pause:g} s that they live"
        sentence = f"{lane.name} is delivered again after {wait:g} s, and {signs}"
        what_to_do = "give all workers of the pool one GRNS_LEASE_SECONDS, and start them again"
        if wait <= pause:
            yield error("ack_wait", f"{sentence}: everything is delivered twice", what_to_do)
        elif wait < 2 * pause:
            yield warning("ack_wait", f"{sentence}: one that is late makes a second delivery", what_to_do)


def _leases(read: Snapshot) -> Iterator[Finding]:
    for stats in read.workers_by_pool or ():
        shortest, longest = stats.shortest_lease_seconds, stats.longest_lease_seconds
        if shortest != longest and shortest is not None and longest is not None:
            yield warning(
                "ack_wait",
                f"workers of {stats.agent_type} have leases of {shortest:g} to {longest:g} s: each sets the"
                " ack_wait of their durables as it starts",
                "give all workers of the pool one GRNS_LEASE_SECONDS",
            )


def check_slots(read: Snapshot) -> Sequence[Finding]:
    """Return where a durable lets fewer deliveries out than its workers have slots."""
    if read.broker is None:
        return []
    return or_ok("slots", _few(list(_slots(read))), "durables let out more than workers have slots for")


def _slots(read: Snapshot) -> Iterator[Finding]:
    for lane in lanes(read):
        durable, stats = lane.durable, lane.stats
        most = durable.max_ack_pending
        if stats is not None and 0 < most < stats.slots:
            yield error(
                "slots",
                f"{lane.name} lets out {most:,} deliveries at a time, and its workers have {stats.slots:,}"
                " slots: the others get work from Postgres alone",
                "raise max_ack_pending of the durable, or split the pool",
            )
        elif most > 0 and durable.ack_pending >= _CROWDED * most:
            yield warning(
                "slots",
                f"{lane.name} has {durable.ack_pending:,} of {most:,} deliveries out, not acknowledged",
                "do workers of this pool hang? grns pool list, grns top",
            )
        if stats is not None and 0 < durable.max_waiting < stats.workers:
            yield warning(
                "slots",
                f"{lane.name} lets {durable.max_waiting:,} fetch at a time, and has"
                f" {stats.workers:,} workers",
                "delete the durable: workers make it anew, with more room",
            )


def check_pools(read: Snapshot) -> Sequence[Finding]:
    """Return which tasks wait that nobody serves, and which workers are not what they should be."""
    if read.workers_by_pool is None:
        why = read.troubles.get("pools")
        return (
            []
            if why is None
            else [error("pools", f"workers could not be read: {why}", "grns admin db current")]
        )
    workers, slots = (
        sum(stats.workers for stats in read.workers_by_pool),
        sum(stats.slots for stats in read.workers_by_pool),
    )
    pools = sum(stats.workers > 0 for stats in read.workers_by_pool)
    told = f"{workers} workers of {pools} pools live, with {slots:,} slots"
    return or_ok("pools", [*_unserved(read), *_silent(read), *_versions(read)], told)


def _unserved(read: Snapshot) -> Iterator[Finding]:
    served = {stats.agent_type for stats in read.workers_by_pool or () if stats.workers}
    for one in (read.unserved or ())[:_MOST_NAMED]:
        waits = f"the oldest for {lasted(one.oldest_seconds)}"
        why = "has a handler for it" if one.agent_type in served else "is up"
        yield warning(
            "pools",
            f"tasks of the type {one.task_type} wait ({waits}), and no worker of {one.agent_type} {why}",
            f"start one that has: grns worker start MODULE:POOL; "
            f"grns task list status:queued type:{one.task_type}",
        )


def _silent(read: Snapshot) -> Iterator[Finding]:
    for stats in read.workers_by_pool or ():
        if stats.silent:
            yield note(
                "pools",
                f"{stats.silent} workers of {stats.agent_type} are silent, and have not said that they ended",
                "did they crash? Their tasks are taken back by the reaper",
            )


def _versions(read: Snapshot) -> Iterator[Finding]:
    versions = sorted({version for stats in read.workers_by_pool or () for version in stats.versions})
    others = [version for version in versions if version != read.version]
    if others:
        yield note(
            "pools",
            f"workers of grns {', '.join(others)} are up, and this is {read.version}",
            "fine during an upgrade; afterwards start the others again",
        )


def _few(found: Sequence[Finding]) -> Sequence[Finding]:
    """Return the worst of many findings that are alike, and how many more there are."""
    if len(found) <= _MOST_NAMED:
        return found
    worst = sorted(found, key=lambda one: -one.severity.rank)
    rest = worst[_MOST_NAMED:]
    severity: Severity = rest[0].severity
    more = Finding(
        rest[0].check, severity, f"and {len(rest)} more findings like these", "grns admin broker info"
    )
    return [*worst[:_MOST_NAMED], more]
