"""The log: whether there is room for what will be written, and whether what is old goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grns.diagnose.doctor.finding import Finding, error, note, or_ok, warning
from grns.diagnose.doctor.snapshot import Log, Snapshot
from grns.text import lasted

AHEAD = 3  # so many the janitor keeps
_DAY_SECONDS = 86_400.0
# The janitor looks more often than that.
_LATE_SECONDS = 3600.0
# How long the broker holds events: what it has lost of them is replayed from the log.
_EVENTS_DAYS = 7.0
_MOST_NAMED = 3


def check_partitions(read: Snapshot) -> Sequence[Finding]:
    """Return whether partitions lie ahead: without one, nothing can be submitted, claimed or finished."""
    log = read.log
    if log is None:
        why = read.troubles.get("log")
        return (
            []
            if why is None
            else [error("partitions", f"they could not be read: {why}", "grns admin db current")]
        )
    room = f"{log.ahead} partitions of the log lie ahead, with room for {log.rows_left:,} rows"
    return or_ok("partitions", [*_room(log, room), *_leftovers(log)], room)


def _room(log: Log, room: str) -> Iterator[Finding]:
    if log.rows_left <= 0:
        yield error("partitions", "the log is full: nothing can be written any more", "grns daemon janitor")
    elif log.ahead < AHEAD:
        make = error if log.ahead == 0 else warning
        yield make(
            "partitions", f"{room}; a janitor keeps {AHEAD} of them", "does one run? grns daemon janitor"
        )


def _leftovers(log: Log) -> Iterator[Finding]:
    stuck = [one.name for one in log.partitions if one.is_detaching]
    if stuck:
        yield warning(
            "partitions",
            f"{', '.join(stuck[:_MOST_NAMED])} was being taken away, and that was cut short",
            "a janitor goes on with it: does one run?",
        )
    if log.orphans:
        yield note(
            "partitions",
            f"{log.orphans} tables of the log belong to nothing any more",
            "a janitor drops them: does one run?",
        )


def check_retention(read: Snapshot) -> Sequence[Finding]:
    """Return whether old partitions go, and whether the log is kept long enough for what it is for."""
    log = read.log
    if log is None:
        return []
    days = read.settings.log_retention_days
    found = (*_overdue(log, days * _DAY_SECONDS), *_short(read))
    return or_ok("retention", found, f"the log is kept for {days:g} days")


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
            f"{len(held)} partitions of the log are past their time (the newest row of one is {age} old) and"
            " stay: they are not all published and counted",
            "do a relay and a counter run? grns daemon relay, grns daemon stats",
        )
    elif old:
        yield warning(
            "retention",
            f"{len(old)} partitions of the log are past their time, and nobody has taken them away",
            "does a janitor run? grns daemon janitor",
        )


def _short(read: Snapshot) -> Iterator[Finding]:
    settings = read.settings
    if settings.log_retention_days < _EVENTS_DAYS:
        yield warning(
            "retention",
            f"the log is kept for {settings.log_retention_days:g} days, and the broker holds events for"
            f" {_EVENTS_DAYS:g}: of what it may lose, a part could not be replayed",
            "raise GRNS_LOG_RETENTION_DAYS",
        )
    if settings.remembered_days < settings.log_retention_days:
        yield note(
            "retention",
            f"event handlers remember messages for {settings.remembered_days:g} days, less than the log is"
            " kept: `grns events replay` of what is older needs --include-forgotten",
            "unset GRNS_PROCESSED_RETENTION_DAYS",
        )
