"""Checks of pools: their workers, and the durable consumers of their priority subjects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from grns.diagnose.doctor.finding import Finding, Severity, error, note, or_ok, warning
from grns.diagnose.doctor.snapshot import Snapshot, WorkerStats
from grns.errors import InvalidInputError
from grns.model import subjects
from grns.model.text import lasted

if TYPE_CHECKING:
    from grns.nats.report import DurableReport

# Workers send `InProgress` this many times in each `ack_wait`, which is at most half a minute.
_SIGNALS = 3
_LONGEST_ACK_WAIT_SECONDS = 30.0
_CROWDED = 0.9
_MOST_NAMED = 5


class SubjectState(NamedTuple):
    """A priority subject with its durable consumer and the workers of its pool, if there are any."""

    name: str
    durable: DurableReport
    stats: WorkerStats | None


def priority_subjects(snapshot: Snapshot) -> list[SubjectState]:
    """Return the priority subjects with a durable consumer."""
    if snapshot.broker is None:
        return []
    workers_by_pool = {(stats.workspace, stats.agent_type): stats for stats in snapshot.workers_by_pool or ()}
    prefix, stream = snapshot.settings.nats_prefix, snapshot.settings.nats_prefix + subjects.CMD_STREAM
    found = []
    for durable in (
        one for report in snapshot.broker.streams if report.name == stream for one in report.durables
    ):
        for subject in durable.subjects:
            name = subject.removeprefix(prefix)
            pool = _pool_of(name)
            if pool is not None:
                found.append(SubjectState(name, durable, workers_by_pool.get(pool)))
    return found


def _pool_of(subject: str) -> tuple[str, str] | None:
    """Return workspace and agent type of a priority subject; None for other subjects."""
    try:
        parsed = subjects.parse(subject)
    except InvalidInputError:
        return None
    if parsed.kind != subjects.EXECUTE or len(parsed.routing) != 3:
        return None
    return parsed.routing[0], parsed.routing[1]


def check_priority_subjects(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that the priority subjects of live workers have durable consumers."""
    prefix = snapshot.settings.nats_prefix
    streams = snapshot.broker.streams if snapshot.broker is not None else ()
    if not any(stream.exists and stream.name == prefix + subjects.CMD_STREAM for stream in streams):
        return []
    return or_ok(
        "priority_subjects",
        _few(list(_missing(snapshot))),
        "all priority subjects of live workers have durable consumers",
    )


def _missing(snapshot: Snapshot) -> Iterator[Finding]:
    known = {one.name for one in priority_subjects(snapshot)}
    for stats in snapshot.workers_by_pool or ():
        names = [
            subjects.priority_subject(stats.workspace, stats.agent_type, priority)
            for priority in subjects.PRIORITIES
        ]
        missing = [name for name in names if name not in known]
        if stats.workers and missing:
            yield warning(
                "priority_subjects",
                f"{len(missing)} of {len(names)} priority subjects of {stats.agent_type} have no durable"
                f" consumer, such as {missing[0]}: workers claim from Postgres, more slowly",
                "workers create them when they start; their log has the reason if they cannot",
            )


def check_ack_wait(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that workers send `InProgress` well within the `ack_wait` of their durable consumers.

    They send it every third of their own `ack_wait`: their lease, or half a minute if that is less.
    """
    if snapshot.broker is None:
        return []
    return or_ok(
        "ack_wait", _few([*_ack_wait(snapshot), *_leases(snapshot)]), "workers send InProgress well within it"
    )


def _ack_wait(snapshot: Snapshot) -> Iterator[Finding]:
    for subject in priority_subjects(snapshot):
        lease = None if subject.stats is None else subject.stats.longest_lease_seconds
        if lease is None:
            continue
        pause = min(_LONGEST_ACK_WAIT_SECONDS, lease) / _SIGNALS
        wait = subject.durable.ack_wait_seconds
        sentence = f"{subject.name}: ack_wait is {wait:g} s, and workers send InProgress every {pause:g} s"
        what_to_do = "set the same GRNS_LEASE_SECONDS for all workers of the pool, and restart them"
        if wait <= pause:
            yield error("ack_wait", f"{sentence}: every command is delivered twice", what_to_do)
        elif wait < 2 * pause:
            yield warning("ack_wait", f"{sentence}: a late one causes a second delivery", what_to_do)


def _leases(snapshot: Snapshot) -> Iterator[Finding]:
    for stats in snapshot.workers_by_pool or ():
        shortest, longest = stats.shortest_lease_seconds, stats.longest_lease_seconds
        if shortest != longest and shortest is not None and longest is not None:
            yield warning(
                "ack_wait",
                f"workers of {stats.agent_type} have leases of {shortest:g} to {longest:g} s: each start"
                " changes the ack_wait of the durable consumers",
                "set the same GRNS_LEASE_SECONDS for all workers of the pool",
            )


def check_slots(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that durable consumers deliver enough for the slots of their workers."""
    if snapshot.broker is None:
        return []
    return or_ok("slots", _few(list(_slots(snapshot))), "durable consumers deliver enough for all slots")


def _slots(snapshot: Snapshot) -> Iterator[Finding]:
    for subject in priority_subjects(snapshot):
        durable, stats = subject.durable, subject.stats
        most = durable.max_ack_pending
        if stats is not None and 0 < most < stats.slots:
            yield error(
                "slots",
                f"{subject.name}: max_ack_pending is {most:,}, and its workers have {stats.slots:,} slots:"
                " the other slots claim from Postgres",
                "raise max_ack_pending of the durable consumer, or split the pool",
            )
        elif most > 0 and durable.ack_pending >= _CROWDED * most:
            yield warning(
                "slots",
                f"{subject.name}: {durable.ack_pending:,} of {most:,} deliveries are not acknowledged",
                "check whether workers of this pool hang: grns pool list, grns top",
            )
        if stats is not None and 0 < durable.max_waiting < stats.workers:
            yield warning(
                "slots",
                f"{subject.name}: max_waiting is {durable.max_waiting:,}, and the pool has {stats.workers:,}"
                " workers",
                "delete the durable consumer: workers create it again with a higher limit",
            )


def check_pools(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that queued tasks have workers, and that no worker is silent or outdated."""
    if snapshot.workers_by_pool is None:
        why = snapshot.troubles.get("pools")
        return (
            []
            if why is None
            else [error("pools", f"workers could not be read: {why}", "grns admin db current")]
        )
    workers, slots = (
        sum(stats.workers for stats in snapshot.workers_by_pool),
        sum(stats.slots for stats in snapshot.workers_by_pool),
    )
    pools = sum(stats.workers > 0 for stats in snapshot.workers_by_pool)
    summary = f"{workers} live workers in {pools} pools, with {slots:,} slots"
    return or_ok("pools", [*_unserved(snapshot), *_silent(snapshot), *_versions(snapshot)], summary)


def check_schedules(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that live workers declare the schedules that were declared in code."""
    if snapshot.orphans is None:
        return []
    return or_ok("schedules", _orphans(snapshot.orphans), "live workers declare all declared schedules")


def _orphans(orphans: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    for name, pool in orphans[:_MOST_NAMED]:
        yield warning(
            "schedules",
            f"no live worker of {pool} declares schedule {name} any more",
            "grns schedule prune",
        )


def _unserved(snapshot: Snapshot) -> Iterator[Finding]:
    served = {stats.agent_type for stats in snapshot.workers_by_pool or () if stats.workers}
    for one in (snapshot.unserved or ())[:_MOST_NAMED]:
        why = "worker with a handler" if one.agent_type in served else "live worker"
        yield warning(
            "pools",
            f"tasks of the type {one.task_type} are queued (for up to {lasted(one.oldest_seconds)}), and the"
            f" pool {one.agent_type} has no {why}",
            f"start a worker with this handler: grns worker start MODULE:POOL; "
            f"grns task list status:queued type:{one.task_type}",
        )


def _silent(snapshot: Snapshot) -> Iterator[Finding]:
    for stats in snapshot.workers_by_pool or ():
        if stats.silent:
            yield note(
                "pools",
                f"{stats.silent} workers of {stats.agent_type} stopped sending heartbeats without a shutdown",
                "they may have crashed; the reaper puts their tasks back",
            )


def _versions(snapshot: Snapshot) -> Iterator[Finding]:
    versions = sorted({version for stats in snapshot.workers_by_pool or () for version in stats.versions})
    others = [version for version in versions if version != snapshot.version]
    if others:
        yield note(
            "pools",
            f"workers of grns {', '.join(others)} are running, and this is {snapshot.version}",
            "normal during an upgrade; restart them afterwards",
        )


def _few(found: Sequence[Finding]) -> Sequence[Finding]:
    """Return the worst of many similar findings, and the number of the others."""
    if len(found) <= _MOST_NAMED:
        return found
    worst = sorted(found, key=lambda one: -one.severity.rank)
    rest = worst[_MOST_NAMED:]
    severity: Severity = rest[0].severity
    more = Finding(
        rest[0].check, severity, f"and {len(rest)} more findings like these", "grns admin broker info"
    )
    return [*worst[:_MOST_NAMED], more]
