"""What an attempt reports over HTTP: its latest progress and checkpoint, sent once a second at most."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from dataclasses import asdict
from json import dumps as encode
from json import loads
from typing import TYPE_CHECKING, Any

from grns.errors import GrnsError, LeaseLostError, UnavailableError
from grns.model.json import Limits, dumps
from grns.model.log_line import NAMES, Line
from grns.model.secret import clear_json
from grns.model.usage import Usage
from grns.worker.task_logger import LineBudget

if TYPE_CHECKING:
    from grns.agent.task import AgentTask

_PAUSE_SECONDS = 1.0
_LAST_PAUSES_SECONDS = (0.1, 0.5, 1.0)
_MOST_LINES, _MOST_LINE_BYTES = 100, 32 * 1024  # of one request
_VALUES = Limits()
_log = logging.getLogger("grns.agent")


class AttemptReports:
    """The reports of one attempt. Any thread may call `report`."""

    def __init__(self, task: AgentTask) -> None:
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._noting = threading.Lock()
        self._told: dict[str, Any] = {}
        self._lines: list[Line] = []
        self._used: list[Usage] = []
        self._budget = LineBudget()
        self._sending: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def report(self, **told: Any) -> None:
        """Send what is told, later reports instead of earlier ones. Raises InvalidInputError."""
        said = {name: value for name, value in told.items() if value is not None}
        if "checkpoint" in said:
            said["checkpoint"] = clear_json(said["checkpoint"])
            dumps(said["checkpoint"], _VALUES)
        with self._noting:
            self._told |= said
        self._wake()

    def log(self, level: int, message: str, fields: str | None) -> None:
        """Send a line for the log of the task, unless it is one too many."""
        with self._noting:
            line = self._budget.line(level, message, fields, unsent=len(self._lines))
            if line is not None:
                self._lines.append(line)
        self._wake()

    def use(self, usage: Usage) -> None:
        """Send what was used."""
        with self._noting:
            self._used.append(usage)
        self._wake()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # a thread that outlasts its loop
            self._loop.call_soon_threadsafe(self._begin)

    async def close(self) -> None:
        """Send the rest, since the outcome comes behind it; an API that is away does not hold that up."""
        self._closing.set()
        if self._sending is not None:
            await self._sending
        for pause in _LAST_PAUSES_SECONDS:
            while await self._send():
                pass
            if not self._has_more:
                return
            await asyncio.sleep(pause)

    @property
    def _has_more(self) -> bool:
        return bool(self._told or self._lines or self._used)

    def _begin(self) -> None:
        if not self._closing.is_set() and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._has_more and not self._closing.is_set():
            while await self._send():
                pass
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_SECONDS):
                    await self._closing.wait()

    async def _send(self) -> bool:
        """Send what is unsent; return whether there are lines that did not fit into the request."""
        with self._noting:
            told, self._told = self._told, {}
            lines = [] if "checkpoint" in told else _first_of(self._lines)  # each fits into a request
            del self._lines[: len(lines)]
            used, self._used = self._used[:_MOST_LINES], self._used[_MOST_LINES:]
            has_more = bool(self._lines or self._used)
            if self._task.ended == "lost":
                told, lines, self._lines, used, self._used = {}, [], [], [], []
        if not (told or lines or used):
            return False
        if used:
            told["usage"] = [_used(one) for one in used]
        if lines:
            told["log"] = [_wire(line) for line in lines]
        try:
            await self._task.heartbeat(**told)
        except LeaseLostError:
            with self._noting:
                self._lines.clear()
                self._used.clear()
            return False
        except UnavailableError:  # a later report may come through
            with self._noting:
                told.pop("log", None)
                told.pop("usage", None)
                self._told = told | self._told
                self._lines[:0] = lines
                self._used[:0] = used
            return False
        except GrnsError as error:  # refused, as it would be again
            _log.warning("task %s: a report is refused: %s", self._task.id, error)
        return has_more


def _used(usage: Usage) -> dict[str, Any]:
    said = asdict(usage)
    del said["is_priced"]
    return said


def _wire(line: Line) -> dict[str, Any]:
    said = {} if line.fields is None else loads(line.fields)
    return {
        "level": NAMES[line.level], "message": line.message or " ", "fields": said,
        "number": line.number,
    }  # fmt: skip


def _first_of(lines: list[Line]) -> list[Line]:
    """Return the first lines that fit into a request, one at least."""
    found, size = list[Line](), 0
    for line in lines[:_MOST_LINES]:
        size += len(encode([line.message, line.fields]))
        if found and size > _MOST_LINE_BYTES:
            break
        found.append(line)
    return found
