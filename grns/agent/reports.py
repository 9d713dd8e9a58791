"""What an attempt reports over HTTP: its latest progress and checkpoint, sent once a second at most."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from grns.errors import GrnsError, LeaseLostError, UnavailableError
from grns.model.json import Limits, dumps, jsonable

if TYPE_CHECKING:
    from grns.agent.task import AgentTask

_PAUSE_SECONDS = 1.0
_LAST_PAUSES_SECONDS = (0.1, 0.5, 1.0)
_VALUES = Limits()
_log = logging.getLogger("grns.agent")


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
        with self._noting:
            self._told |= said
        with suppress(RuntimeError):  # a thread that outlasts its loop
            self._loop.call_soon_threadsafe(self._begin)

    async def close(self) -> None:
        """Send the rest, since the outcome comes behind it; an API that is away does not hold that up."""
        self._closing.set()
        if self._sending is not None:
            await self._sending
        for pause in _LAST_PAUSES_SECONDS:
            await self._send()
            if not self._told:
                return
            await asyncio.sleep(pause)

    def _begin(self) -> None:
        if not self._closing.is_set() and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._told and not self._closing.is_set():
            await self._send()
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_SECONDS):
                    await self._closing.wait()

    async def _send(self) -> None:
        with self._noting:
            told, self._told = self._told, {}
        if not told or self._task.ended == "lost":
            return
        try:
            await self._task.heartbeat(**told)
        except LeaseLostError:
            return
        except UnavailableError:  # a later report may come through
            with self._noting:
                self._told = told | self._told
        except GrnsError as error:  # refused, as it would be again
            _log.warning("task %s: a report is refused: %s", self._task.id, error)
