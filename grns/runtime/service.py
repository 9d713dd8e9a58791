"""One loop for every service: a tick does one batch and returns how long to pause."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from grns.errors import GrnsError, UnavailableError, UnusableError
from grns.telemetry.service_signals import PostgresAwaited, ServiceStarted, ServiceStopped, TickFailed
from grns.telemetry.signal import Emit

_LONGEST_PAUSE_SECONDS = 2.0

Answer = TypeVar("Answer")


class Service(Protocol):
    """A service as the wiring starts and stops it."""

    async def run(self) -> None:
        """Work until stopped."""

    def stop(self) -> None:
        """Ask for the end; `run` returns soon after."""


async def wait_for_postgres(work: Callable[[], Awaitable[Answer]], *, emit: Emit) -> Answer:
    """Call `work` until Postgres answers, at growing intervals of up to 2 s, and return what it returns.

    Raises UnusableError and all but Unavailable: waiting does not help there.
    """
    failures = 0
    while True:
        try:
            return await work()
        except UnusableError:
            raise
        except UnavailableError as error:
            failures += 1
            emit(PostgresAwaited(str(error), "this process continues when Postgres answers"))
        pause = min(_LONGEST_PAUSE_SECONDS, 0.05 * 2 ** min(failures, 10))
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))


@dataclass(slots=True, kw_only=True, eq=False)
class PeriodicService:
    """A service that ticks until stopped.

    Faults that can pass (all of `GrnsError`) are logged and retried after a growing, jittered pause;
    anything else is a bug and ends the process.
    """

    name: str
    emit: Emit
    longest_pause_seconds: float = _LONGEST_PAUSE_SECONDS
    _awake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _is_stopping: bool = field(default=False, init=False)

    async def tick(self) -> float:
        """Do one batch; return the seconds to pause."""
        raise NotImplementedError

    async def begin(self) -> None:
        """Prepare before the first tick."""

    async def end(self) -> None:
        """Clean up after the last tick."""

    def wake(self) -> None:
        """End the pause: there is something to do."""
        self._awake.set()

    def stop(self) -> None:
        """End the loop after the current tick."""
        self._is_stopping = True
        self._awake.set()

    async def run(self) -> None:
        """Tick until `stop`."""
        await self.begin()
        self.emit(ServiceStarted(self.name))
        failures = 0
        while not self._is_stopping:
            self._awake.clear()
            try:
                pause = await self.tick()
                failures = 0
            except GrnsError as error:
                failures += 1
                self.emit(TickFailed(self.name, str(error)))
                pause = min(self.longest_pause_seconds, 0.05 * 2 ** min(failures, 10)) * random.uniform(
                    0.5, 1.0
                )
            await self._pause(pause)
        self.emit(ServiceStopped(self.name))
        await self.end()

    async def _pause(self, seconds: float) -> None:
        if self._is_stopping:
            return
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        except TimeoutError:
            return


@dataclass(slots=True, eq=False)
class PeriodicLoop(PeriodicService):
    """A loop of a tick function, for objects that run several loops."""

    name: str
    work: Callable[[], Awaitable[float]]

    async def tick(self) -> float:
        """Call the function."""
        return await self.work()
