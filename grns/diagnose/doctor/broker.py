"""The broker: whether its streams and durables are as grns makes them, and have room."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from grns.diagnose.doctor.finding import Finding, Severity, error, or_ok, warning
from grns.diagnose.doctor.snapshot import Broker, Snapshot
from grns.model import subjects

if TYPE_CHECKING:
    from grns.nats.report import StreamReport

OLDEST = (2, 11)
# A relay that takes over sends again what was not persisted: seconds of it, or more after a freeze.
_SHORTEST_WINDOW_SECONDS = 60.0
_FILLING, _FULL = 0.8, 0.95
_MOST_NAMED = 5
# Judged for themselves, by what the workers are: see `lane.py`.
_JUDGED = ": ack_wait is "


def check_broker(read: Snapshot) -> Sequence[Finding]:
    """Return whether the broker can be reached, and is new enough."""
    found = read.broker
    if found is None:
        why = read.troubles.get("broker", "it was not asked")
        what_to_do = (
            "grns admin config show --origin; meanwhile workers find their tasks in Postgres, more slowly"
        )
        return [error("broker", f"the broker cannot be reached: {why}", what_to_do)]
    if _number(found.version) < OLDEST:
        sentence = f"nats-server {found.version} is older than {'.'.join(map(str, OLDEST))}"
        return [error("broker", sentence, "upgrade the broker")]
    return or_ok("broker", (), f"nats-server {found.version} at {read.settings.nats_hosts()}")


def _number(version: str) -> tuple[int, ...]:
    """Return a version as numbers; one that says nothing counts as new enough."""
    found = [int(part) for part in re.findall(r"\d+", version)[:2]]
    return tuple(found) if len(found) == 2 else OLDEST


def check_streams(read: Snapshot) -> Sequence[Finding]:
    """Return which streams are missing, or other than grns makes them."""
    found = read.broker
    if found is None:
        return []
    held = sum(stream.messages for stream in found.streams)
    sentence = f"{len(found.streams)} streams are as grns makes them, and hold {held:,} messages"
    return or_ok("streams", _streams(read, found), sentence)


def _streams(read: Snapshot, found: Broker) -> Iterator[Finding]:
    is_by_hand = read.settings.nats_manage == "verify"
    advice = (
        "make them so by your own means: GRNS_NATS_MANAGE is verify"
        if is_by_hand
        else "grns admin broker apply"
    )
    for stream in found.streams:
        for sentence in stream.drift:
            if not stream.exists:
                yield error("streams", f"the stream {sentence}", advice)
            else:
                make = error if is_by_hand else warning  # where nobody mends it, relays and workers refuse it
                yield make("streams", sentence, advice)


def check_durables(read: Snapshot) -> Sequence[Finding]:
    """Return which durables of grns are other than it makes them."""
    found = read.broker
    if found is None:
        return []
    ours = [one for stream in found.streams for one in stream.durables if one.is_ours]
    return or_ok("durables", _durables(read), f"{len(ours)} durables are as grns makes them")


def _durables(read: Snapshot) -> Iterator[Finding]:
    drift = [
        sentence
        for stream in (read.broker.streams if read.broker is not None else ())
        for one in stream.durables
        for sentence in one.drift
        if _JUDGED not in sentence
    ]
    is_by_hand = read.settings.nats_manage == "verify"
    make = error if is_by_hand else warning
    advice = "workers mend them when they start" if not is_by_hand else "make them so by your own means"
    for sentence in drift[:_MOST_NAMED]:
        yield make("durables", sentence, advice)
    if len(drift) > _MOST_NAMED:
        yield make("durables", f"and {len(drift) - _MOST_NAMED} more differences", "grns admin broker info")


def check_dedupe(read: Snapshot) -> Sequence[Finding]:
    """Return whether the broker drops what a relay sends twice after a crash."""
    streams = [stream for stream in (read.broker.streams if read.broker is not None else ()) if stream.exists]
    if not streams:
        return []
    shortest = min(streams, key=lambda stream: stream.duplicate_window_seconds)
    seconds = shortest.duplicate_window_seconds
    if seconds >= _SHORTEST_WINDOW_SECONDS:
        return or_ok("dedupe_window", (), f"{seconds:g} s at least")
    sentence = (
        f"{shortest.name} remembers messages for {seconds:g} s: what a relay sends again after a crash may be"
        " stored twice"
    )
    return [error("dedupe_window", sentence, "grns admin broker apply")]


def check_room(read: Snapshot) -> Sequence[Finding]:
    """Return which streams are nearly full. Those of events drop the oldest, and only commands need room."""
    streams = [stream for stream in (read.broker.streams if read.broker is not None else ()) if stream.exists]
    if not streams:
        return []
    return or_ok(
        "room", [one for stream in streams for one in _room(read, stream)], "no stream is nearly full"
    )


def _room(read: Snapshot, stream: StreamReport) -> Iterator[Finding]:
    is_of_commands = stream.name == read.settings.nats_prefix + subjects.CMD_STREAM
    share = stream.size_bytes / stream.max_bytes if stream.max_bytes > 0 else 0.0
    if is_of_commands and share >= _FILLING:
        severity = Severity.ERROR if share >= _FULL else Severity.WARNING
        sentence = (
            f"{stream.name} is {share:.0%} full: what it does not take, workers find in Postgres, more slowly"
        )
        yield Finding(
            "room", severity, sentence, "grns admin broker info  (which lane is it?), GRNS_NATS_CMD_MAX_BYTES"
        )
    if stream.max_consumers > 0 and len(stream.durables) >= _FILLING * stream.max_consumers:
        sentence = (
            f"{stream.name} has {len(stream.durables)} of {stream.max_consumers} durables that it may have"
        )
        yield warning("room", sentence, "GRNS_NATS_MAX_CONSUMERS, or delete durables that nobody needs")
