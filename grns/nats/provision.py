"""Streams and durables: the configuration that grns expects, and how they are brought to it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from grns.errors import DriftError, GrnsError, OutcomeUnknownError, UnavailableError
from grns.model import subjects
from grns.model.envelope import rfc3339
from grns.nats.api import (
    CONSUMER_EXISTS,
    NO_CONSUMER,
    NO_ROOM,
    NO_STREAM,
    STREAM_EXISTS,
    TEMPORARY,
    Api,
    ApiError,
)
from grns.nats.connection import OnFact
from grns.settings import Settings

NANOSECONDS = 1_000_000_000
EPOCH = "grns.epoch"
MINUTE, _DAY = 60 * NANOSECONDS, 86_400 * NANOSECONDS

Config = dict[str, Any]


def expected_streams(settings: Settings) -> list[Config]:
    """Return the configurations of the three streams. The epoch is added when one is created."""
    prefix = settings.nats_prefix
    shared: Config = {
        "storage": "file",
        "num_replicas": settings.nats_replicas,
        # Explicit: nats-server 2.15 allows a stream 1,000 by default.
        "max_consumers": settings.nats_max_consumers,
    }
    commands = shared | {
        "name": prefix + subjects.CMD_STREAM,
        "subjects": [f"{prefix}cmd.>"],
        "retention": "workqueue",
        "discard": "new",
        # A priority subject without workers must not fill the stream for the others.
        "discard_new_per_subject": True,
        "max_msgs_per_subject": settings.nats_cmd_max_per_subject,
        "max_bytes": settings.nats_cmd_max_bytes,
        "max_age": _DAY,
        "duplicate_window": 5 * MINUTE,
    }
    history = shared | {"retention": "limits", "compression": "s2", "discard": "old"}
    events = history | {
        "name": prefix + subjects.EVT_STREAM,
        "subjects": [f"{prefix}evt.>"],
        "max_bytes": settings.nats_evt_max_bytes,
        "max_age": 7 * _DAY,
        "duplicate_window": 10 * MINUTE,
    }
    dead_letters = history | {
        "name": prefix + subjects.DLQ_STREAM,
        "subjects": [f"{prefix}dlq.>"],
        "max_bytes": settings.nats_dlq_max_bytes,
        "max_age": 30 * _DAY,
        "duplicate_window": 10 * MINUTE,
    }
    return [commands, events, dead_letters]


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
        # No limit and no backoff: a message past its limit would stay in the queue forever, unseen.
        "max_deliver": -1,
        "replay_policy": "instant",
    }


def filters(durable: Mapping[str, Any]) -> list[str]:
    """Return the subjects that a durable serves, without duplicates."""
    single = durable.get("filter_subject")
    return sorted({*(durable.get("filter_subjects") or []), *([single] if single else [])}) or [">"]


def drift(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """Return the differences, one sentence each. Fields that grns does not set may have any value."""
    name = expected["name"]
    return [
        f"{name}: {key} is {actual.get(key)!r}, grns expects {value!r}"
        for key, value in expected.items()
        if key != "metadata" and not _same(value, actual.get(key))
    ]


def _same(expected: object, actual: object) -> bool:
    if isinstance(expected, list) and isinstance(actual, list):
        return sorted(expected) == sorted(actual)
    return expected == actual


def merged(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> Config:
    """Return `actual` with the expected values. Fields set by other tools stay, and so does the epoch."""
    kept = {
        key: value for key, value in (actual.get("metadata") or {}).items() if not key.startswith("_nats.")
    }
    return {**actual, **expected, "metadata": {**kept, **expected.get("metadata", {})}}


# In the metadata of a durable that had no position before its first delivery.
_CHECKED = "grns.checked"
_MOST_TIMES_MADE = 4
# How nats-server describes files of a durable that it cannot read (10104, 10012).
_STORE_FAILED = "error creating store for consumer"


class Provisioner:
    """Creates and updates streams and durables; with `nats_manage = verify` it only compares."""

    def __init__(self, api: Api, settings: Settings, *, on_fact: OnFact) -> None:
        self._api = api
        self._settings = settings
        self._fact = on_fact
        self._lock = asyncio.Lock()

    @property
    def _may_change(self) -> bool:
        return self._settings.nats_manage == "apply"

    async def streams(self) -> bool:
        """Create, update or check the streams; return True if one was created."""
        async with self._lock:
            if not self._may_change and (differences := await self.differences()):
                raise DriftError("; ".join(differences))
            made: list[bool] = []
            failures: list[GrnsError] = []
            for expected in expected_streams(self._settings):
                try:
                    made.append(await self._stream(expected))
                except GrnsError as error:  # the others are still created
                    failures.append(error)
            if failures:
                raise _combined(failures)
            return any(made)

    async def outputs(self, expected: Config) -> None:
        """Create or update the stream of output, as far as we may: its readers can do without."""
        if self._may_change:
            try:
                await self._stream(expected)
            except GrnsError as error:
                self._fact("broker_error", {"error": f"{expected['name']}: {error}"})

    async def remove(self, *more: Config) -> None:
        """Delete the streams and all their messages; missing ones are skipped."""
        for expected in [*expected_streams(self._settings), *more]:
            try:
                await self._api.call(f"STREAM.DELETE.{expected['name']}")
            except ApiError as error:
                if error.number != NO_STREAM:
                    raise

    async def differences(self) -> list[str]:
        """Return how the streams differ from what grns expects, one sentence each."""
        differences: list[str] = []
        for expected in expected_streams(self._settings):
            actual = await self._find(f"STREAM.INFO.{expected['name']}", NO_STREAM)
            missing = [f"{expected['name']} does not exist"]
            differences += missing if actual is None else drift(expected, actual)
        return differences

    async def durable(self, stream: str, expected: Config) -> None:
        """Create, update or check one durable; if its stream is missing, provision the streams."""
        actual = await self._find_durable(stream, expected)
        if filters(actual) != filters(expected):
            raise DriftError(
                f"the durable {expected['name']} of {stream} serves {', '.join(filters(actual))}"
                f" and not {', '.join(filters(expected))}: delete it, or use another name"
            )
        differences = drift(expected, actual)
        if not differences:
            return
        await self._change(
            f"CONSUMER.CREATE.{stream}.{expected['name']}",
            differences,
            _request(stream, merged(expected, actual), "update"),
        )

    async def pause(self, stream: str, durable: str, seconds: float) -> bool:
        """Pause a durable by the broker's clock, which may be far from ours; 0 resumes it.

        A durable already paused for at least half as long, and no longer than that, is left unchanged.
        Return False if there is no such durable.
        """
        try:
            info = await self._api.call(f"CONSUMER.INFO.{stream}.{durable}")
        except ApiError as error:
            if error.number in (NO_CONSUMER, NO_STREAM):
                return False
            raise
        left_seconds = info.get("pause_remaining", 0) / NANOSECONDS
        if not seconds / 2 <= left_seconds <= seconds:
            until = datetime.fromisoformat(info["ts"]) + timedelta(seconds=seconds)
            await self._api.call(f"CONSUMER.PAUSE.{stream}.{durable}", {"pause_until": rfc3339(until)})
        return True

    # One stream

    async def _stream(self, expected: Config) -> bool:
        name = expected["name"]
        actual = await self._find(f"STREAM.INFO.{name}", NO_STREAM)
        if actual is None:
            if await self._make_stream(expected):
                return True
            actual = await self._find(f"STREAM.INFO.{name}", NO_STREAM) or {}
        differences = drift(expected, actual)
        if differences:
            await self._change(f"STREAM.UPDATE.{name}", differences, merged(expected, actual))
        return False

    async def _make_stream(self, expected: Config) -> bool:
        """Create a stream; return False if another process was faster."""
        epoch = str(uuid.uuid4())
        try:
            await self._api.call(
                f"STREAM.CREATE.{expected['name']}", {**expected, "metadata": {EPOCH: epoch}}
            )
        except ApiError as error:
            if error.number == STREAM_EXISTS:
                return False
            raise _drift_or(error, [f"the stream {expected['name']} cannot be made"]) from error
        self._fact("stream_made", {"stream": expected["name"], "epoch": epoch})
        return True

    # One durable

    async def _find_durable(self, stream: str, expected: Config) -> Config:
        """Return the durable's configuration; create it if it is missing.

        After a power cut, nats-server may have a durable's position and not the durable: it syncs neither.
        A durable created again under that name has the old position, and misses what was published since.
        So each durable is checked before its first delivery, and deleted if it has a position by then.
        """
        name = expected["name"]
        for _ in range(_MOST_TIMES_MADE):
            info = await self._durable_info(stream, name) or await self._make_durable(stream, expected)
            if info is None:
                continue  # another process was faster
            config: Config = info["config"]
            if _CHECKED in (config.get("metadata") or {}) or not self._may_change:
                return config
            if _has_position(info):
                await self._delete_durable(stream, name)
                self._fact("durable_with_old_position_deleted", {"stream": stream, "durable": name})
                continue
            checked = merged({"name": name, "metadata": {_CHECKED: "true"}}, config)
            await self._api.call(f"CONSUMER.CREATE.{stream}.{name}", _request(stream, checked, "update"))
            return config
        raise DriftError(f"the durable {name} of {stream} was deleted while it was made")

    async def _durable_info(self, stream: str, name: str) -> dict[str, Any] | None:
        try:
            return await self._api.call(f"CONSUMER.INFO.{stream}.{name}")
        except ApiError as error:
            if error.number == NO_STREAM:
                await self.streams()
            elif error.number != NO_CONSUMER:
                raise
            return None

    async def _make_durable(self, stream: str, expected: Config) -> dict[str, Any] | None:
        """Create a durable and return it; None if another process was faster."""
        name = expected["name"]
        if not self._may_change:
            raise DriftError(
                f"the durable {name} of {stream} ({', '.join(filters(expected))}) does not exist"
            )
        operation = f"CONSUMER.CREATE.{stream}.{name}"
        try:
            try:
                made = await self._api.call(operation, _request(stream, expected, "create"))
            except ApiError as error:
                if _STORE_FAILED not in error.description:
                    raise
                # Its files are damaged, and the server never removes them: keep the durable in memory.
                in_memory = _request(stream, {**expected, "mem_storage": True}, "create")
                made = await self._api.call(operation, in_memory)
                reason = {"stream": stream, "durable": name, "reason": str(error)}
                self._fact("durable_kept_in_memory", reason)
        except ApiError as error:
            if error.number == CONSUMER_EXISTS:
                return None
            raise _drift_or(error, [f"the durable {name} of {stream} cannot be made"]) from error
        self._fact("durable_made", {"stream": stream, "durable": name, "subjects": filters(expected)})
        return made

    async def _delete_durable(self, stream: str, name: str) -> None:
        try:
            await self._api.call(f"CONSUMER.DELETE.{stream}.{name}")
        except ApiError as error:
            if error.number != NO_CONSUMER:
                raise

    # Both

    async def _find(self, operation: str, missing: int) -> Config | None:
        try:
            answer = await self._api.call(operation)
        except ApiError as error:
            if error.number == missing:
                return None
            raise
        config: Config = answer["config"]
        return config

    async def _change(self, operation: str, differences: list[str], request: dict[str, Any]) -> None:
        if not self._may_change:
            raise DriftError("; ".join(differences))
        try:
            await self._api.call(operation, request)
        except ApiError as error:
            raise _drift_or(error, differences) from error
        self._fact("broker_changed", {"differences": differences})


def _combined(failures: Sequence[GrnsError]) -> GrnsError:
    """Combine errors: a `DriftError` only if all are, since any other may pass without a change."""
    passing = [error for error in failures if not isinstance(error, DriftError)]
    if len(failures) == 1:
        return failures[0]
    sentences = "; ".join(dict.fromkeys(str(error) for error in failures))
    if not passing:
        return DriftError(sentences)
    is_unknown = any(isinstance(error, OutcomeUnknownError) for error in passing)
    combined = OutcomeUnknownError(sentences) if is_unknown else UnavailableError(sentences)
    combined.__cause__ = passing[0]
    return combined


def _has_position(info: dict[str, Any]) -> bool:
    """Return whether a durable has delivered or acknowledged anything."""
    return bool(info["delivered"]["consumer_seq"] or info["ack_floor"]["consumer_seq"])


def _request(stream: str, config: Config, action: str) -> dict[str, Any]:
    """Return the request for a durable; `action` keeps a creation from changing one that exists."""
    return {"stream_name": stream, "config": config, "action": action}


def _drift_or(error: ApiError, differences: list[str]) -> DriftError | ApiError:
    """Return the error itself if it is temporary, else a `DriftError` with the reason of the server."""
    if error.code == TEMPORARY:
        return error
    advice = ": lower GRNS_NATS_*_MAX_BYTES, or give JetStream more room" if error.number == NO_ROOM else ""
    return DriftError(
        f"{'; '.join(differences)}; the broker refused: {error.description} ({error.number}){advice}"
    )
