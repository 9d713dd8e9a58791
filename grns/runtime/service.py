"""One loop for every daemon: a tick does one batch and says how long to pause."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from grns.errors import GrnsError, UnavailableError, UnusableError
from grns.telemetry.emit import Emit
from grns.telemetry.facts.process import PostgresAwaited, ServiceStarted, ServiceStopped, TickFailed

_LONGEST_PAUSE_SECONDS = 2.0

Answer = TypeVar("Answer")


class Service(Protocol):
    """What the wiring starts and stops."""

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


class PeriodicService:
    """Ticks until stopped.

    `tick` returns the seconds to pause. Faults that can pass (all of `GrnsError`) are told
    and retried, with a growing, jittered pause; anything else is a bug and ends the process.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], Awaitable[float]],
        *,
        emit: Emit,
        longest_pause_seconds: float = _LONGEST_PAUSE_SECONDS,
    ) -> None:
        self._name = name
        self._longest_pause_seconds = longest_pause_seconds
        self._tick = tick
        self._emit = emit
        self._awake = asyncio.Event()
        self._is_stopping = False

    def wake(self) -> None:
        """End the pause: there is something to do."""
        self._awake.set()

    def stop(self) -> None:
        """End the loop after the current tick."""
        self._is_stopping = True
        self._awake.set()

    async def run(self) -> None:
        """Tick until `stop`."""
        self._emit(ServiceStarted(self._name))
        failures = 0
        while not self._is_stopping:
            self._awake.clear()
            try:
                pause = await self._tick()
                failures = 0
            except GrnsError as error:
                failures += 1
                self._emit(TickFailed(self._name, str(error)))
                pause = min(self._longest_pause_seconds, 0.05 * 2 ** min(failures, 10)) * random.uniform(
                    0.5, 1.0
                )
            await self._pause(pause)
        self._emit(ServiceStopped(self._name))

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
