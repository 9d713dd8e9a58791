"""Checks of the daemons, by their traces in Postgres."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grns.diagnose.doctor.finding import Finding, error, or_ok, warning
from grns.diagnose.doctor.snapshot import Snapshot
from grns.model.text import lasted

# A daemon that runs every second or two is late after this time, and away after a minute.
_LATE_SECONDS, _AWAY_SECONDS = 5.0, 60.0
_UNCOUNTED_SECONDS = 30.0
_JANITOR_TICKS = 6
_MEANINGS = {
    "undelivered": "queued, while workers have free slots and claim nothing",
    "unreaped": "held by an expired lease, and not reaped",
    "unpromoted": "due, and not queued",
    "unrelayed": "logged, and not published",
}


def check_relay(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that events are published in time."""
    pulse = snapshot.pulse
    if pulse is None:
        return _unread(snapshot)
    lag = f"the oldest unpublished event is {lasted(pulse.lag_seconds)} old"
    if not pulse.relay_has_leader:
        make = error if pulse.lag_seconds > _LATE_SECONDS else warning
        waits = f": {lag}" if pulse.lag_seconds else ""
        return [make("relay", f"no relay is running{waits}", "grns daemon relay  (or grns server)")]
    if pulse.lag_seconds > _LATE_SECONDS:
        make = error if pulse.lag_seconds > _AWAY_SECONDS else warning
        what_to_do = "check that the broker is reachable and not full; the log of the relay has the reason"
        return [make("relay", f"{lag}; the leader is {pulse.relay_owner}", what_to_do)]
    return or_ok(
        "relay", (), f"the leader is {pulse.relay_owner or 'a relay'}, {lasted(pulse.lag_seconds)} behind"
    )


def check_stats(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that events are counted: the log keeps uncounted events."""
    pulse = snapshot.pulse
    if pulse is None:
        return []
    lag = f"the oldest uncounted event is {lasted(pulse.uncounted_seconds)} old"
    if not pulse.stats_has_leader:
        return [
            warning("stats", f"no stats aggregator is running: {lag}", "grns daemon stats  (or grns server)")
        ]
    if pulse.uncounted_seconds > _UNCOUNTED_SECONDS:
        return [warning("stats", lag, "look at its log; a long transaction can delay it")]
    return or_ok("stats", (), f"a stats aggregator is running, {lasted(pulse.uncounted_seconds)} behind")


def check_reaper(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that the tasks of dead workers are put back."""
    pulse = snapshot.pulse
    if pulse is None:
        return []
    ago = pulse.reaped_seconds_ago
    last_run = "none has ever run" if ago is None else f"the last run was {lasted(ago)} ago"
    if ago is None or pulse.is_reaper_late:
        make = error if pulse.lapsed_seconds > _LATE_SECONDS else warning
        over = f"; a lease expired {lasted(pulse.lapsed_seconds)} ago" if pulse.lapsed_seconds else ""
        return [
            make("reaper", f"no reaper is running ({last_run}){over}", "grns daemon reaper  (or grns server)")
        ]
    holds = pulse.reaper_holds_seconds
    rest = f"; the grace period after an outage lasts {lasted(holds)} more" if holds else ""
    return or_ok("reaper", (), f"{last_run}{rest}")


def check_retry_scheduler(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that due tasks are queued."""
    pulse = snapshot.pulse
    if pulse is None:
        return []
    late = pulse.overdue_seconds
    if late <= _LATE_SECONDS:
        return or_ok("retry_scheduler", (), "due tasks are queued")
    make = error if late > _LATE_SECONDS + _AWAY_SECONDS else warning
    sentence = f"a task has been due for {lasted(late)} and is not queued"
    return [make("retry_scheduler", sentence, "grns daemon scheduler  (or grns server)")]


def check_janitor(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that a janitor is running."""
    pulse = snapshot.pulse
    if pulse is None:
        return []
    ago = pulse.janitor_seconds_ago
    allowed = _JANITOR_TICKS * snapshot.settings.janitor_interval_seconds + _AWAY_SECONDS
    if ago is not None and ago <= allowed:
        return or_ok("janitor", (), f"the last run was {lasted(ago)} ago")
    last_run = "none has ever run" if ago is None else f"the last run was {lasted(ago)} ago"
    return [warning("janitor", f"no janitor is running: {last_run}", "grns daemon janitor  (or grns server)")]


def check_operations(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that bulk operations make progress."""
    pulse = snapshot.pulse
    if pulse is None:
        return []
    late = pulse.operations_late_seconds
    if late <= _AWAY_SECONDS:
        return or_ok("operations", (), "no operation waits for a runner")
    sentence = f"an operation has made no progress for {lasted(late)}"
    return [warning("operations", sentence, "grns daemon operations  (or grns server)")]


def check_stuck(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that no task or event is stuck."""
    if snapshot.stuck is None:
        return []
    return or_ok(
        "stuck",
        _stuck(snapshot),
        f"no task or event has been stuck for {lasted(snapshot.settings.stuck_after_seconds)}",
    )


def _stuck(snapshot: Snapshot) -> Iterator[Finding]:
    for name, count in (snapshot.stuck or {}).items():
        noun = "event is" if name == "unrelayed" else "task is"
        plural = (
            noun
            if count == 1
            else noun.replace(" is", " are").replace("event", "events").replace("task", "tasks")
        )
        seconds = snapshot.settings.stuck_after_seconds
        sentence = f"{count:,} {plural} {_MEANINGS.get(name, name)}, for {lasted(seconds)}"
        yield error("stuck", sentence, "grns admin verify  (it names them), then grns explain TASK")


def _unread(snapshot: Snapshot) -> Sequence[Finding]:
    why = snapshot.troubles.get("pulse")
    return (
        []
        if why is None
        else [error("relay", f"the state of the daemons could not be read: {why}", "grns admin db current")]
    )
