"""The command server: creates and cancels tasks for programs that ask over NATS, in any language.

Commands (`cmd.task.submit.v1`) are fetched from the stream, as many as can be carried out soon. Requests
(`req.task.submit.v1`) come as their senders like: beyond a window of them the others are turned away at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from grns.errors import GrnsError, RateLimitedError
from grns.gateway.commands import CommandHandler
from grns.model import subjects
from grns.nats import JetStream
from grns.nats.consumer import Consumer
from grns.nats.delivery import Delivery, Request, Serving
from grns.runtime.service import PeriodicService
from grns.telemetry.task_signals import CommandCrashed, RequestWindowFull

_GROUP = "grns"
_ASKED = [
    (kind, workspace)
    for kind in (*subjects.SERVED, subjects.AGENTS)
    for workspace in (subjects.DEFAULT_WORKSPACE, subjects.OTHER_WORKSPACES)
]
COMMANDS = [subjects.message(kind, workspace) for kind, workspace in _ASKED]
REQUESTS = [subjects.request(kind, workspace) for kind, workspace in _ASKED]

_WINDOW_BYTES = 32 * 1024 * 1024
_CONNECT_SECONDS = 0.5
_LOOK_SECONDS = 5.0
_LAST_SECONDS = 10.0


class RequestWindow:
    """Room for so many requests, and for so many bytes of them; one alone may be of any size."""

    def __init__(self, *, requests: int, request_bytes: int = _WINDOW_BYTES) -> None:
        self._most, self._most_bytes = requests, request_bytes
        self.requests = 0
        self.request_bytes = 0

    def try_take(self, size: int) -> bool:
        """Take room for one, if there is any."""
        if self.requests and (self.requests >= self._most or self.request_bytes + size > self._most_bytes):
            return False
        self.requests += 1
        self.request_bytes += size
        return True

    def give(self, size: int) -> None:
        """Give its room back."""
        self.requests -= 1
        self.request_bytes -= size


@dataclass(slots=True, kw_only=True, eq=False)
class CommandServer(PeriodicService):
    """Takes requests and commands from the bus; any number may run, and share them.

    Its connection to the broker is its own: a sender that floods it delays nothing else.
    """

    transport: JetStream
    handler: CommandHandler
    window: RequestWindow
    depth: int
    name: str = "request_desk"
    _consumers: dict[str, Consumer] = field(default_factory=dict, init=False)
    _servings: dict[str, Serving] = field(default_factory=dict, init=False)
    _running: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def run(self) -> None:
        """Serve until stopped; what is under way then comes to its end."""
        await self.transport.connect(is_patient=True)
        try:
            await PeriodicService.run(self)
        finally:
            await self.transport.close()

    def stop(self) -> None:
        """Ask for the end."""
        self._stopping.set()
        PeriodicService.stop(self)

    async def tick(self) -> float:
        """Open what is not open yet, once the broker is there. What is open mends itself."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self.transport.wait_connected()
        except TimeoutError:
            return 0.0
        failures: list[GrnsError] = []
        for subject in (*REQUESTS, *COMMANDS):
            if not self._is_open(subject) and not self._stopping.is_set():
                try:
                    await self._open(subject)
                except GrnsError as error:  # the others are opened all the same
                    failures.append(error)
        if failures:
            raise failures[0]
        return _LOOK_SECONDS

    def _is_open(self, subject: str) -> bool:
        return subject in self._servings or subject in self._consumers

    async def _open(self, subject: str) -> None:
        if subject in REQUESTS:
            self._servings[subject] = await self.transport.serve(subject, _GROUP, self._take_in)
        else:
            self._consumers[subject] = await self.transport.consume(
                subject, partial(self._receive, subject), depth=self.depth
            )

    def _take_in(self, request: Request) -> None:
        """Begin with a request, or turn it away: nothing here may wait, or all others would."""
        size = len(request.body)
        if self.window.try_take(size):
            self._spawn(self._answer(request, size))
            return
        self.emit(RequestWindowFull(self.window.requests, self.window.request_bytes))
        self.handler.refuse(request, RateLimitedError("too many requests are under way"))

    def _receive(self, subject: str, delivery: Delivery) -> None:
        self._spawn(self._follow(subject, delivery))

    async def _answer(self, request: Request, size: int) -> None:
        try:
            await self.handler.answer(request)
        except Exception as error:
            self._tell(request.subject, error)
        finally:
            self.window.give(size)

    async def _follow(self, subject: str, delivery: Delivery) -> None:
        """See one command to its end; what breaks there ends with it, and is delivered again."""
        rest_seconds = 0.0
        try:
            rest_seconds = await self.handler.follow(delivery)
        except Exception as error:
            self._tell(delivery.subject, error)
        await self._rest(rest_seconds)
        if (consumer := self._consumers.get(subject)) is not None:
            consumer.done()

    async def _rest(self, seconds: float) -> None:
        """Keep a place taken for a while, unless we are to end."""
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopping.wait()

    def _tell(self, subject: str, error: Exception) -> None:
        self.emit(CommandCrashed(subject, type(error).__name__, str(error)[:500]))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def end(self) -> None:
        """Take in nothing more, and let come to its end what is under way: Postgres is waited for so long."""
        sources: list[Serving | Consumer] = [*self._servings.values(), *self._consumers.values()]
        await asyncio.gather(*(source.stop() for source in sources), return_exceptions=True)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LAST_SECONDS
        while self._running and (rest := deadline - loop.time()) > 0:
            await asyncio.wait(self._running, timeout=rest)
