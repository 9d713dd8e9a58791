"""Streams and durables: made where they are missing, mended or reported where they are different."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

from grns.errors import DriftError, GrnsError, OutcomeUnknownError, UnavailableError
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
from grns.nats.config import EPOCH, Config, drift, expected_streams, filters, merged
from grns.nats.signals import OnFact
from grns.settings import Settings

# In the metadata of a durable that had no position before its first delivery.
_CHECKED = "grns.checked"
_MOST_TIMES_MADE = 4
# How nats-server describes files of a durable that it cannot read (10104, 10012).
_STORE_FAILED = "error creating store for consumer"


class Provisioner:
    """Brings the broker to what grns expects; with `nats_manage = verify` it only compares."""

    def __init__(self, api: Api, settings: Settings, *, on_fact: OnFact) -> None:
        self._api = api
        self._settings = settings
        self._fact = on_fact
        self._one_at_a_time = asyncio.Lock()

    @property
    def _may_change(self) -> bool:
        return self._settings.nats_manage == "apply"

    async def streams(self) -> bool:
        """Make, mend or check the streams; True where one had to be made."""
        async with self._one_at_a_time:
            if not self._may_change and (found := await self.differences()):
                raise DriftError("; ".join(found))
            made: list[bool] = []
            failures: list[GrnsError] = []
            for expected in expected_streams(self._settings):
                try:
                    made.append(await self._stream(expected))
                except GrnsError as error:  # the others are made all the same
                    failures.append(error)
            if failures:
                raise _together(failures)
            return any(made)

    async def remove(self) -> None:
        """Delete the streams, with all that they hold; done where they are not there."""
        for expected in expected_streams(self._settings):
            try:
                await self._api.call(f"STREAM.DELETE.{expected['name']}")
            except ApiError as error:
                if error.number != NO_STREAM:
                    raise

    async def differences(self) -> list[str]:
        """Return how the streams differ from what grns would make, one sentence each."""
        found: list[str] = []
        for expected in expected_streams(self._settings):
            actual = await self._find(f"STREAM.INFO.{expected['name']}", NO_STREAM)
            found += [f"{expected['name']} does not exist"] if actual is None else drift(expected, actual)
        return found

    async def durable(self, stream: str, expected: Config) -> None:
        """Make, mend or check one durable, and the streams where its own is missing."""
        actual = await self._find_durable(stream, expected)
        if filters(actual) != filters(expected):
            raise DriftError(
                f"the durable {expected['name']} of {stream} serves {', '.join(filters(actual))}"
                f" and not {', '.join(filters(expected))}: delete it, or use another name"
            )
        found = drift(expected, actual)
        if not found:
            return
        await self._change(
            f"CONSUMER.CREATE.{stream}.{expected['name']}",
            found,
            _request(stream, merged(expected, actual), "update"),
        )

    # One stream

    async def _stream(self, expected: Config) -> bool:
        name = expected["name"]
        actual = await self._find(f"STREAM.INFO.{name}", NO_STREAM)
        if actual is None:
            if await self._make_stream(expected):
                return True
            actual = await self._find(f"STREAM.INFO.{name}", NO_STREAM) or {}
        found = drift(expected, actual)
        if found:
            await self._change(f"STREAM.UPDATE.{name}", found, merged(expected, actual))
        return False

    async def _make_stream(self, expected: Config) -> bool:
        """Make a stream; False where somebody else was faster."""
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
        """Return the durable's configuration after making it where it is missing.

        After a power cut, nats-server may have a durable's position and not the durable: it syncs neither.
        One that is made again under that name has the old position, and misses what was published since.
        So each durable is looked at before its first delivery, and deleted if it has a position by then.
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
        """Return the new durable; None where another process has made it."""
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
                # Its files are damaged, and nothing but hands removes them: the server keeps it in memory.
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

    async def _change(self, operation: str, found: list[str], request: dict[str, Any]) -> None:
        if not self._may_change:
            raise DriftError("; ".join(found))
        try:
            await self._api.call(operation, request)
        except ApiError as error:
            raise _drift_or(error, found) from error
        self._fact("broker_changed", {"differences": found})


def _together(failures: Sequence[GrnsError]) -> GrnsError:
    """Return one error for all: a `DriftError` only where all are, since what is none may pass by itself."""
    passing = [error for error in failures if not isinstance(error, DriftError)]
    if len(failures) == 1:
        return failures[0]
    sentences = "; ".join(dict.fromkeys(str(error) for error in failures))
    if not passing:
        return DriftError(sentences)
    is_unknown = any(isinstance(error, OutcomeUnknownError) for error in passing)
    found = OutcomeUnknownError(sentences) if is_unknown else UnavailableError(sentences)
    found.__cause__ = passing[0]
    return found


def _has_position(info: dict[str, Any]) -> bool:
    """Return whether a durable has delivered or acknowledged anything."""
    return bool(info["delivered"]["consumer_seq"] or info["ack_floor"]["consumer_seq"])


def _request(stream: str, config: Config, action: str) -> dict[str, Any]:
    """Return the request for a durable; `action` keeps a creation from changing one that exists."""
    return {"stream_name": stream, "config": config, "action": action}


def _drift_or(error: ApiError, found: list[str]) -> DriftError | ApiError:
    """Return the error itself where it may pass, else a `DriftError` that says what the server refused."""
    if error.code == TEMPORARY:
        return error
    advice = ": lower GRNS_NATS_*_MAX_BYTES, or give JetStream more room" if error.number == NO_ROOM else ""
    return DriftError(f"{'; '.join(found)}; the broker refused: {error.description} ({error.number}){advice}")
