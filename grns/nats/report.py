"""Descriptions of streams and durables for people, with their drift."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grns.model import subjects
from grns.nats.api import NO_CONSUMER, NO_STREAM, Api, ApiError
from grns.nats.messages import DurableState, Lag
from grns.nats.provision import (
    NANOSECONDS,
    Config,
    drift,
    expected_durable,
    expected_streams,
    expected_subscriber,
    filters,
)
from grns.settings import Settings


@dataclass(frozen=True, slots=True)
class DurableReport:
    """One durable: its subjects, backlog, deliveries not acknowledged, and limits.

    `is_ours` is True if grns has created it; others have no drift.
    """

    name: str
    subjects: list[str]
    pending: int
    ack_pending: int
    redelivered: int
    fetching: int
    drift: list[str]
    is_ours: bool = True
    ack_wait_seconds: float = 0.0
    max_ack_pending: int = 0
    max_waiting: int = 0
    paused_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StreamReport:
    """One stream. The drift of a missing one says so. -1 means without a limit."""

    name: str
    exists: bool = True
    messages: int = 0
    size_bytes: int = 0
    max_bytes: int = -1
    max_consumers: int = -1
    duplicate_window_seconds: float = 0.0
    replicas: int = 1
    first_seq: int = 0
    last_seq: int = 0
    drift: list[str] = field(default_factory=list)
    durables: list[DurableReport] = field(default_factory=list)


class Reporter:
    """Reads descriptions; changes nothing."""

    def __init__(self, api: Api, settings: Settings) -> None:
        self._api = api
        self._settings = settings

    async def report(self) -> list[StreamReport]:
        """Describe each stream of grns."""
        return [await self._stream(expected) for expected in expected_streams(self._settings)]

    async def durable(self, stream: str, name: str) -> DurableState | None:
        """Return the state of one durable; None if there is none."""
        try:
            info = await self._api.call(f"CONSUMER.INFO.{stream}.{name}")
        except ApiError as error:
            if error.number in (NO_CONSUMER, NO_STREAM):
                return None
            raise
        return DurableState(
            pending=info["num_pending"],
            ack_pending=info["num_ack_pending"],
            fetching=info["num_waiting"],
            paused_seconds=info.get("pause_remaining", 0) / NANOSECONDS,
        )

    async def lags(self) -> list[Lag]:
        """Return the backlog of each durable; missing streams are skipped."""
        prefix, lags = self._settings.nats_prefix, list[Lag]()
        for expected in expected_streams(self._settings):
            name = expected["name"]
            try:
                lags += [
                    self._lag(name.removeprefix(prefix), durable)
                    async for durable in self._api.durables(name)
                ]
            except ApiError as error:
                if error.number != NO_STREAM:
                    raise
        return lags

    def _lag(self, stream: str, info: Mapping[str, Any]) -> Lag:
        served = filters(info["config"])
        return Lag(
            stream,
            served[0].removeprefix(self._settings.nats_prefix) if len(served) == 1 else info["name"],
            info["num_pending"],
            info["num_ack_pending"],
            info["num_redelivered"],
        )

    async def _stream(self, expected: Config) -> StreamReport:
        name = expected["name"]
        try:
            info = await self._api.call(f"STREAM.INFO.{name}")
        except ApiError as error:
            if error.number != NO_STREAM:
                raise
            return StreamReport(name, exists=False, drift=[f"{name} does not exist"])
        state, config = info["state"], info["config"]
        durables = [self._durable(name, durable) async for durable in self._api.durables(name)]
        return StreamReport(
            name,
            messages=state["messages"],
            size_bytes=state["bytes"],
            max_bytes=config.get("max_bytes", -1),
            max_consumers=config.get("max_consumers", -1),
            duplicate_window_seconds=config.get("duplicate_window", 0) / NANOSECONDS,
            replicas=config.get("num_replicas", 1),
            first_seq=state["first_seq"],
            last_seq=state["last_seq"],
            drift=drift(expected, config),
            durables=sorted(durables, key=lambda durable: durable.subjects),
        )

    def _durable(self, stream: str, info: Mapping[str, Any]) -> DurableReport:
        config = info["config"]
        return DurableReport(
            name=info["name"],
            subjects=filters(config),
            pending=info["num_pending"],
            ack_pending=info["num_ack_pending"],
            redelivered=info["num_redelivered"],
            fetching=info["num_waiting"],
            drift=self._drift(stream, info["name"], config),
            is_ours=_is_ours(config),
            ack_wait_seconds=config.get("ack_wait", 0) / NANOSECONDS,
            max_ack_pending=config.get("max_ack_pending", 0),
            max_waiting=config.get("max_waiting", 0),
            paused_seconds=info.get("pause_remaining", 0) / NANOSECONDS,
        )

    def _drift(self, stream: str, name: str, actual: Mapping[str, Any]) -> list[str]:
        """Return the drift of a durable that grns has created."""
        served = filters(actual)
        if not _is_ours(actual):
            return []
        if stream == self._settings.nats_prefix + subjects.EVT_STREAM:
            return drift(expected_subscriber(name, served, self._settings), actual)
        return drift(expected_durable(served[0], self._settings), actual)


def _is_ours(durable: Mapping[str, Any]) -> bool:
    return bool((durable.get("metadata") or {}).get("grns.subject"))
