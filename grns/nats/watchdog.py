"""Looks after the line: nats-py itself notices a dead one late, and some dead ones never."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Awaitable, Callable

from grns.nats.nats_client import NatsClient
from grns.nats.signals import OnFact

_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 5.0
_STEADY_SECONDS = 10.0


class WatchdogPauses:
    """How long to wait before the line is made anew: not at all, unless the last one did not last."""

    def __init__(self) -> None:
        self._longest = 0.0

    def next(self, *, lived_seconds: float) -> float:
        """Return the pause before the next line, now that the last one is gone after this time."""
        pause = 0.0 if lived_seconds >= _STEADY_SECONDS else self._longest
        self._longest = min(_LONGEST_PAUSE_SECONDS, max(_FIRST_PAUSE_SECONDS, 2 * pause))
        return pause * random.uniform(0.5, 1.0)


class ConnectionWatchdog:
    """Every few seconds asks the server for a sign of life; replaces a line that has none."""

    def __init__(
        self, *, lease_seconds: float, on_fact: OnFact, rebuild: Callable[[float], Awaitable[NatsClient]]
    ) -> None:
        # Together a third of a lease, so that a loss is noticed before the first renewal is missed.
        third = lease_seconds / 3
        self._period = min(4.0, max(0.5, 0.4 * third))
        self._patience = min(6.0, max(1.5, 0.6 * third))
        self._fact = on_fact
        self._rebuild = rebuild
        self._pauses = WatchdogPauses()
        self._since = math.inf
        self._wake = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self, line: NatsClient) -> None:
        """Begin to watch."""
        self._since = time.monotonic()
        self._task = asyncio.create_task(self._run(line))

    async def stop(self) -> None:
        """Watch no more."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=1)

    def look(self) -> None:
        """Look at once: nats-py has closed the line for good."""
        self._wake.set()

    async def _run(self, line: NatsClient) -> None:
        while not self._stopping:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._period):
                    await self._wake.wait()
            self._wake.clear()
            if self._stopping:
                return
            try:
                line = await self._look_after(line)
            except Exception as error:  # whatever it was, somebody has to look again
                self._fact("broker_error", {"error": f"{type(error).__name__}: {error}"})

    async def _look_after(self, line: NatsClient) -> NatsClient:
        """Do what the line needs, and return the line to watch from now on."""
        if line.is_gone:
            return await self._replace(line)
        if line.is_deaf or (line.is_connected and not await line.answers(within_seconds=self._patience)):
            self._fact("broker_deaf", {"server": line.server})
            await line.redial()
        elif not line.is_connected:
            line.unstick()
        return line

    async def _replace(self, line: NatsClient) -> NatsClient:
        pause = self._pauses.next(lived_seconds=time.monotonic() - self._since)
        self._since = math.inf  # an attempt that fails has not lived
        self._fact("broker_line_rebuilt", {"error": line.last_error})
        line = await self._rebuild(pause)
        self._since = time.monotonic()
        return line
