"""Checks of the event log: partitions and retention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grns.diagnose.doctor.finding import Finding, error, note, or_ok, warning
from grns.diagnose.doctor.snapshot import Log, Snapshot
from grns.model.text import lasted

AHEAD = 3  # the janitor creates this many in advance
_DAY_SECONDS = 86_400.0
# The janitor runs more often.
_LATE_SECONDS = 3600.0
# The retention of the stream of events: lost events are replayed from the log.
_EVENTS_DAYS = 7.0
_MOST_NAMED = 3


def check_partitions(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that partitions exist in advance: without one, nothing can be submitted, claimed or finished."""
    log = snapshot.log
    if log is None:
        why = snapshot.troubles.get("log")
        return (
            []
            if why is None
            else [error("partitions", f"partitions could not be read: {why}", "grns admin db current")]
        )
    room = f"{log.ahead} partitions of the event log are created in advance, for {log.rows_left:,} rows"
    return or_ok("partitions", [*_room(log, room), *_leftovers(log)], room)


def _room(log: Log, room: str) -> Iterator[Finding]:
    if log.rows_left <= 0:
        yield error("partitions", "the event log is full: nothing can be written", "grns daemon janitor")
    elif log.ahead < AHEAD:
        make = error if log.ahead == 0 else warning
        yield make("partitions", f"{room}, not {AHEAD}", "start a janitor: grns daemon janitor")


def _leftovers(log: Log) -> Iterator[Finding]:
    stuck = [one.name for one in log.partitions if one.is_detaching]
    if stuck:
        yield warning(
            "partitions",
            f"the removal of {', '.join(stuck[:_MOST_NAMED])} was interrupted",
            "a janitor completes it: grns daemon janitor",
        )
    if log.orphans:
        yield note(
            "partitions",
            f"{log.orphans} detached partitions of the event log still exist",
            "a janitor drops them: grns daemon janitor",
        )


def check_retention(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that old partitions are dropped, and that the retention is long enough."""
    log = snapshot.log
    if log is None:
        return []
    days = snapshot.settings.log_retention_days
    found = (*_overdue(log, days * _DAY_SECONDS), *_short(snapshot))
    return or_ok("retention", found, f"the event log is kept for {days:g} days")


def _overdue(log: Log, kept_seconds: float) -> Iterator[Finding]:
    old = [
        one
        for one in log.partitions
        if not one.is_ahead and (one.newest_seconds or 0.0) > kept_seconds + _LATE_SECONDS
    ]
    held = [one.name for one in old if not one.is_done_with]
    if held:
        age = lasted(max(one.newest_seconds or 0.0 for one in old))
        yield warning(
            "retention",
            f"{len(held)} partitions of the event log are older than the retention (up to {age}), and"
            " not all of their rows are published, counted and followed",
            "check that these run: grns daemon relay, grns daemon stats, grns daemon scheduler",
        )
    elif old:
        yield warning(
            "retention",
            f"{len(old)} partitions of the event log are older than the retention",
            "start a janitor: grns daemon janitor",
        )


def _short(snapshot: Snapshot) -> Iterator[Finding]:
    settings = snapshot.settings
    if settings.log_retention_days < _EVENTS_DAYS:
        yield warning(
            "retention",
            f"the event log is kept for {settings.log_retention_days:g} days, and the broker keeps events for"
            f" {_EVENTS_DAYS:g}: older events could not be replayed after a loss",
            "raise GRNS_LOG_RETENTION_DAYS",
        )
    if settings.remembered_days < settings.log_retention_days:
        yield note(
            "retention",
            f"event handlers remember messages for {settings.remembered_days:g} days, less than the event"
            " log is kept: `grns events replay` of older events needs --include-forgotten",
            "unset GRNS_PROCESSED_RETENTION_DAYS",
        )
