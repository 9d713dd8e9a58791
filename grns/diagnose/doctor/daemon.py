"""The daemons: whether each does what it is for, as far as that leaves traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grns.diagnose.doctor.finding import Finding, error, or_ok, warning
from grns.diagnose.doctor.snapshot import Snapshot
from grns.text import lasted

# What ticks every second or two is late after so long, and away after a minute.
_LATE_SECONDS, _AWAY_SECONDS = 5.0, 60.0
_UNCOUNTED_SECONDS = 30.0
_JANITOR_TICKS = 6
_MEANINGS = {
    "undelivered": "queued, while workers have room and take nothing",
    "unreaped": "of a worker that is gone, and not taken back",
    "unpromoted": "due, and not queued",
    "unrelayed": "logged, and not published",
}


def check_relay(read: Snapshot) -> Sequence[Finding]:
    """Return whether what is logged is published, soon."""
    pulse = read.pulse
    if pulse is None:
        return _unread(read)
    lag = f"the oldest row of the log that is not published is {lasted(pulse.lag_seconds)} old"
    if not pulse.relay_has_leader:
        make = error if pulse.lag_seconds > _LATE_SECONDS else warning
        waits = f": {lag}" if pulse.lag_seconds else ""
        return [make("relay", f"no relay leads{waits}", "grns daemon relay  (or grns server)")]
    if pulse.lag_seconds > _LATE_SECONDS:
        make = error if pulse.lag_seconds > _AWAY_SECONDS else warning
        what_to_do = "is the broker there, and not full? The log of the relay says what it waits for"
        return [make("relay", f"{lag}, and {pulse.relay_owner} leads", what_to_do)]
    return or_ok("relay", (), f"{pulse.relay_owner or 'a relay'} leads, {lasted(pulse.lag_seconds)} behind")


def check_counter(read: Snapshot) -> Sequence[Finding]:
    """Return whether what is logged is counted: without that, the log keeps everything."""
    pulse = read.pulse
    if pulse is None:
        return []
    lag = f"the oldest row of the log that is not counted is {lasted(pulse.uncounted_seconds)} old"
    if not pulse.stats_has_leader:
        return [warning("counter", f"no counter leads: {lag}", "grns daemon stats  (or grns server)")]
    if pulse.uncounted_seconds > _UNCOUNTED_SECONDS:
        return [warning("counter", lag, "its log says what it waits for; a long transaction may hold it up")]
    return or_ok("counter", (), f"a counter leads, {lasted(pulse.uncounted_seconds)} behind")


def check_reaper(read: Snapshot) -> Sequence[Finding]:
    """Return whether tasks of workers that are gone are taken back."""
    pulse = read.pulse
    if pulse is None:
        return []
    ago = pulse.reaped_seconds_ago
    looked = "none has ever looked" if ago is None else f"the last one looked {lasted(ago)} ago"
    if ago is None or pulse.is_reaper_late:
        make = error if pulse.lapsed_seconds > _LATE_SECONDS else warning
        over = f", and a lease is over since {lasted(pulse.lapsed_seconds)}" if pulse.lapsed_seconds else ""
        return [
            make("reaper", f"no reaper is there ({looked}){over}", "grns daemon reaper  (or grns server)")
        ]
    holds = pulse.reaper_holds_seconds
    rest = f"; they hold still for {lasted(holds)} yet, as after each outage" if holds else ""
    return or_ok("reaper", (), f"{looked}{rest}")


def check_retry_scheduler(read: Snapshot) -> Sequence[Finding]:
    """Return whether what is due is queued."""
    pulse = read.pulse
    if pulse is None:
        return []
    late = pulse.overdue_seconds
    if late <= _LATE_SECONDS:
        return or_ok("retry_scheduler", (), "what is due is queued")
    make = error if late > _LATE_SECONDS + _AWAY_SECONDS else warning
    sentence = f"a task is due since {lasted(late)}, and no retry scheduler has queued it"
    return [make("retry_scheduler", sentence, "grns daemon scheduler  (or grns server)")]


def check_janitor(read: Snapshot) -> Sequence[Finding]:
    """Return whether somebody keeps house."""
    pulse = read.pulse
    if pulse is None:
        return []
    ago = pulse.janitor_seconds_ago
    allowed = _JANITOR_TICKS * read.settings.janitor_interval_seconds + _AWAY_SECONDS
    if ago is not None and ago <= allowed:
        return or_ok("janitor", (), f"the last one looked {lasted(ago)} ago")
    looked = "none has ever looked" if ago is None else f"the last one looked {lasted(ago)} ago"
    return [warning("janitor", f"no janitor is there: {looked}", "grns daemon janitor  (or grns server)")]


def check_operations(read: Snapshot) -> Sequence[Finding]:
    """Return whether somebody goes on with bulk operations."""
    pulse = read.pulse
    if pulse is None:
        return []
    late = pulse.operations_late_seconds
    if late <= _AWAY_SECONDS:
        return or_ok("operations", (), "no operation waits for somebody to go on with it")
    sentence = f"nobody has gone on with an operation for {lasted(late)}"
    return [warning("operations", sentence, "grns daemon operations  (or grns server)")]


def check_stuck(read: Snapshot) -> Sequence[Finding]:
    """Return what should have gone on by now."""
    if read.stuck is None:
        return []
    return or_ok(
        "stuck", _stuck(read), f"nothing waits for more than {lasted(read.settings.stuck_after_seconds)}"
    )


def _stuck(read: Snapshot) -> Iterator[Finding]:
    for name, count in (read.stuck or {}).items():
        noun = "row of the log is" if name == "unrelayed" else "task is"
        plural = (
            noun
            if count == 1
            else noun.replace(" is", " are").replace("row", "rows").replace("task", "tasks")
        )
        sentence = (
            f"{count:,} {plural} {_MEANINGS.get(name, name)}, for {lasted(read.settings.stuck_after_seconds)}"
        )
        yield error("stuck", sentence, "grns verify  (it names them), then grns explain TASK")


def _unread(read: Snapshot) -> Sequence[Finding]:
    why = read.troubles.get("pulse")
    return (
        []
        if why is None
        else [error("relay", f"daemons could not be asked for: {why}", "grns admin db current")]
    )
