"""How long a drain takes: from the first job that was taken until none is left, seen from outside."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from grns.dev.servers.process import Process
from grns.errors import LocalServerError
from tests.bench.peers.peer import PeerUnavailable
from tests.support.harness import START_SECONDS

_POLL_SECONDS = 0.02
_END_SECONDS = 10.0
_SLOWEST_RATE = 50.0  # jobs/s; who is slower is not waited for


class Watch(Protocol):
    """Sees from outside how far a peer's worker is; every look is cheap."""

    async def has_begun(self) -> bool:
        """Tell whether a job has been taken."""
        ...

    async def has_ended(self) -> bool:
        """Tell whether no job is left."""
        ...


async def measure(worker: Process, watch: Watch, rows: int) -> float:
    """Start a worker on `rows` waiting jobs, end it when it has run them, and return jobs/s."""
    async with started(worker):
        await until(watch.has_begun, worker, within_seconds=START_SECONDS)
        began = time.perf_counter()
        await until(watch.has_ended, worker, within_seconds=START_SECONDS + rows / _SLOWEST_RATE)
        return rows / (time.perf_counter() - began)


async def complete(process: Process, *, within_seconds: float) -> None:
    """Run a process to its end, whichever way it ends: what it was to do has to be looked at."""

    async def has_ended() -> bool:
        return not process.running

    async with started(process):
        await until(has_ended, process, within_seconds=within_seconds)


@asynccontextmanager
async def started(process: Process) -> AsyncIterator[None]:
    """Let a process run beside what is done inside; afterwards it has ended, by force if need be."""
    try:
        process.start()
    except LocalServerError as error:
        raise PeerUnavailable(str(error)) from error
    try:
        yield
    finally:
        await asyncio.to_thread(process.stop, signal.SIGTERM, timeout_seconds=_END_SECONDS)


async def until(look: Callable[[], Awaitable[bool]], process: Process, *, within_seconds: float) -> None:
    """Wait until `look` sees something; raises PeerUnavailable when the process or the time ends before."""
    deadline = time.monotonic() + within_seconds
    while True:
        runs = process.running  # asked first: what it did in its last moment is seen
        if await look():
            return
        if not runs:
            raise PeerUnavailable(f"{process.name} ended before its time\n{process.tail()}".rstrip())
        if time.monotonic() > deadline:
            raise PeerUnavailable(f"{process.name} took over {within_seconds:g} s\n{process.tail()}".rstrip())
        await asyncio.sleep(_POLL_SECONDS)
