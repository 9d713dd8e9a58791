"""What an attempt reports over HTTP: its latest progress and checkpoint, sent once a second at most."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from grns.errors import GrnsError, LeaseLostError
from grns.model.duration import seconds_named
from grns.model.json import Limits, dumps, jsonable

if TYPE_CHECKING:
    from grns.agent.task import AgentTask

_PAUSE_SECONDS = 1.0
_VALUES = Limits()


class AttemptReports:
    """The reports of one attempt. Any thread may call `report`."""

    def __init__(self, task: AgentTask) -> None:
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._noting = threading.Lock()
        self._told: dict[str, Any] = {}
        self._sending: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def report(self, **told: Any) -> None:
        """Send what is told, later reports instead of earlier ones. Raises InvalidInputError."""
        said = {name: value for name, value in told.items() if value is not None}
        if "checkpoint" in said:
            said["checkpoint"] = jsonable(said["checkpoint"])
            dumps(said["checkpoint"], _VALUES)
        seconds_named("remaining", said.get("remaining"), code="bad_handler")
        with self._noting:
            self._told |= said
        with suppress(RuntimeError):  # a thread that outlasts its loop
            self._loop.call_soon_threadsafe(self._begin)

    async def close(self) -> None:
        """Send the rest: the outcome comes behind it."""
        self._closing.set()
        if self._sending is not None:
            await self._sending
        await self._send()

    def _begin(self) -> None:
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._told:
            await self._send()
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_SECONDS):
                    await self._closing.wait()

    async def _send(self) -> None:
        with self._noting:
            told, self._told = self._told, {}
        if not told or self._task.lost:
            return
        try:
            await self._task.heartbeat(**told)
        except LeaseLostError:
            return
        except GrnsError:  # the API is away: a later report may come through
            with self._noting:
                self._told = told | self._told
