"""What grns wants of streams and durables, as the server spells it, and how far something is from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grns.model import subjects
from grns.settings import Settings

NANOSECONDS = 1_000_000_000
EPOCH = "grns.epoch"
_MINUTE, _DAY = 60 * NANOSECONDS, 86_400 * NANOSECONDS

Config = dict[str, Any]


def expected_streams(settings: Settings) -> list[Config]:
    """Return the configurations of the three streams. The epoch is added where one is made."""
    prefix = settings.nats_prefix
    shared: Config = {
        "storage": "file",
        "num_replicas": settings.nats_replicas,
        # Explicit: nats-server 2.15 gives a stream 1,000 where it says nothing.
        "max_consumers": settings.nats_max_consumers,
    }
    commands = shared | {
        "name": prefix + subjects.CMD_STREAM,
        "subjects": [f"{prefix}cmd.>"],
        "retention": "workqueue",
        "discard": "new",
        # One lane without a pool must not fill the stream for the others.
        "discard_new_per_subject": True,
        "max_msgs_per_subject": settings.nats_cmd_max_per_subject,
        "max_bytes": settings.nats_cmd_max_bytes,
        "max_age": _DAY,
        "duplicate_window": 5 * _MINUTE,
    }
    history = shared | {"retention": "limits", "compression": "s2", "discard": "old"}
    events = history | {
        "name": prefix + subjects.EVT_STREAM,
        "subjects": [f"{prefix}evt.>"],
        "max_bytes": settings.nats_evt_max_bytes,
        "max_age": 7 * _DAY,
        "duplicate_window": 10 * _MINUTE,
    }
    letters = history | {
        "name": prefix + subjects.DLQ_STREAM,
        "subjects": [f"{prefix}dlq.>"],
        "max_bytes": settings.nats_dlq_max_bytes,
        "max_age": 30 * _DAY,
        "duplicate_window": 10 * _MINUTE,
    }
    return [commands, events, letters]


def expected_durable(subject: str, settings: Settings) -> Config:
    """Return the configuration of the durable that serves one subject of the work queue."""
    return _durable(subjects.durable(subject), settings) | {
        "filter_subject": subject,
        "max_ack_pending": 20_000,
        # Cannot be raised later; the default of 512 is less than a large pool has workers.
        "max_waiting": 8192,
        "metadata": {"grns.subject": subject},
    }


def expected_subscriber(name: str, filter_subjects: Sequence[str], settings: Settings) -> Config:
    """Return the configuration of a subscriber's own durable on the events."""
    return _durable(name, settings) | {
        "filter_subjects": list(filter_subjects),
        "max_ack_pending": 5000,
        "inactive_threshold": 7 * _DAY,
        "metadata": {"grns.subject": " ".join(filter_subjects)},
    }


def _durable(name: str, settings: Settings) -> Config:
    return {
        "name": name,
        "durable_name": name,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": int(settings.ack_wait_seconds * NANOSECONDS),
        # No limit and no backoff: a message past its limit would stay in the queue for ever, unseen.
        "max_deliver": -1,
        "replay_policy": "instant",
    }


def filters(durable: Mapping[str, Any]) -> list[str]:
    """Return the subjects that a durable serves, none of them twice."""
    one = durable.get("filter_subject")
    return sorted({*(durable.get("filter_subjects") or []), *([one] if one else [])}) or [">"]


def drift(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """Return what is other than expected, one sentence each. What grns says nothing about may be anything."""
    name = expected["name"]
    return [
        f"{name}: {key} is {actual.get(key)!r}, grns would make it {wanted!r}"
        for key, wanted in expected.items()
        if key != "metadata" and not _same(wanted, actual.get(key))
    ]


def _same(wanted: object, found: object) -> bool:
    if isinstance(wanted, list) and isinstance(found, list):
        return sorted(wanted) == sorted(found)
    return wanted == found


def merged(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> Config:
    """Return `actual` made as expected: what somebody else has set stays, and so does the epoch."""
    kept = {
        key: value for key, value in (actual.get("metadata") or {}).items() if not key.startswith("_nats.")
    }
    return {**actual, **expected, "metadata": {**kept, **expected.get("metadata", {})}}
