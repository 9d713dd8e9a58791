"""Checks of the broker: streams and durable consumers, their configuration and their size."""

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
# A new leader sends unrecorded messages again: those of some seconds, or of more after a freeze.
_SHORTEST_WINDOW_SECONDS = 60.0
_FILLING, _FULL = 0.8, 0.95
_MOST_NAMED = 5
# A check of its own, which knows the workers' leases: see `pools.py`.
_JUDGED = ": ack_wait is "


def check_broker(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that the broker can be reached and is new enough."""
    found = snapshot.broker
    if found is None:
        why = snapshot.troubles.get("broker", "it was not read")
        what_to_do = "grns admin config show --origin; meanwhile workers claim from Postgres, more slowly"
        return [error("broker", f"the broker cannot be reached: {why}", what_to_do)]
    if _number(found.version) < OLDEST:
        sentence = f"nats-server {found.version} is older than {'.'.join(map(str, OLDEST))}"
        return [error("broker", sentence, "upgrade the broker")]
    return or_ok("broker", (), f"nats-server {found.version} at {snapshot.settings.nats_hosts()}")


def _number(version: str) -> tuple[int, ...]:
    """Return a version as numbers; an unreadable version counts as new enough."""
    found = [int(part) for part in re.findall(r"\d+", version)[:2]]
    return tuple(found) if len(found) == 2 else OLDEST


def check_streams(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that all streams exist with the expected configuration."""
    found = snapshot.broker
    if found is None:
        return []
    held = sum(stream.messages for stream in found.streams)
    sentence = f"{len(found.streams)} streams have the expected configuration and {held:,} messages"
    return or_ok("streams", _streams(snapshot, found), sentence)


def _streams(snapshot: Snapshot, found: Broker) -> Iterator[Finding]:
    is_by_hand = snapshot.settings.nats_manage == "verify"
    advice = (
        "change them with your own tools: GRNS_NATS_MANAGE is verify"
        if is_by_hand
        else "grns admin broker apply"
    )
    for stream in found.streams:
        for sentence in stream.drift:
            if not stream.exists:
                yield error("streams", f"the stream {sentence}", advice)
            else:
                make = error if is_by_hand else warning  # with `verify`, relays and workers refuse it
                yield make("streams", sentence, advice)


def check_durables(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that durable consumers have the expected configuration."""
    found = snapshot.broker
    if found is None:
        return []
    ours = [one for stream in found.streams for one in stream.durables if one.is_ours]
    return or_ok(
        "durables", _durables(snapshot), f"{len(ours)} durable consumers have the expected configuration"
    )


def _durables(snapshot: Snapshot) -> Iterator[Finding]:
    drift = [
        sentence
        for stream in (snapshot.broker.streams if snapshot.broker is not None else ())
        for one in stream.durables
        for sentence in one.drift
        if _JUDGED not in sentence
    ]
    is_by_hand = snapshot.settings.nats_manage == "verify"
    make = error if is_by_hand else warning
    advice = "workers correct them when they start" if not is_by_hand else "change them with your own tools"
    for sentence in drift[:_MOST_NAMED]:
        yield make("durables", sentence, advice)
    if len(drift) > _MOST_NAMED:
        yield make("durables", f"and {len(drift) - _MOST_NAMED} more differences", "grns admin broker info")


def check_dedupe(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that the broker drops the second copy of a message after a crash of the relay."""
    streams = [
        stream for stream in (snapshot.broker.streams if snapshot.broker is not None else ()) if stream.exists
    ]
    if not streams:
        return []
    shortest = min(streams, key=lambda stream: stream.duplicate_window_seconds)
    seconds = shortest.duplicate_window_seconds
    if seconds >= _SHORTEST_WINDOW_SECONDS:
        return or_ok("dedupe_window", (), f"at least {seconds:g} s")
    sentence = (
        f"{shortest.name} deduplicates messages for only {seconds:g} s: after a crash of the relay, messages"
        " can be stored twice"
    )
    return [error("dedupe_window", sentence, "grns admin broker apply")]


def check_room(snapshot: Snapshot) -> Sequence[Finding]:
    """Check that streams are not nearly full. Streams of events drop their oldest messages."""
    streams = [
        stream for stream in (snapshot.broker.streams if snapshot.broker is not None else ()) if stream.exists
    ]
    if not streams:
        return []
    return or_ok(
        "room", [one for stream in streams for one in _room(snapshot, stream)], "no stream is nearly full"
    )


def _room(snapshot: Snapshot, stream: StreamReport) -> Iterator[Finding]:
    is_of_commands = stream.name == snapshot.settings.nats_prefix + subjects.CMD_STREAM
    share = stream.size_bytes / stream.max_bytes if stream.max_bytes > 0 else 0.0
    if is_of_commands and share >= _FILLING:
        severity = Severity.ERROR if share >= _FULL else Severity.WARNING
        sentence = f"{stream.name} is {share:.0%} full: beyond that, workers claim from Postgres, more slowly"
        yield Finding(
            "room", severity, sentence, "grns admin broker info  (which subject?), GRNS_NATS_CMD_MAX_BYTES"
        )
    if stream.max_consumers > 0 and len(stream.durables) >= _FILLING * stream.max_consumers:
        sentence = (
            f"{stream.name} has {len(stream.durables)} of at most {stream.max_consumers} durable consumers"
        )
        yield warning("room", sentence, "raise GRNS_NATS_MAX_CONSUMERS, or delete unused durable consumers")
