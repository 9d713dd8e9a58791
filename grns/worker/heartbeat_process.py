"""The heartbeat process's process, as its worker sees it: started, watched, started again, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable

import structlog

from grns.errors import UnavailableError
from grns.telemetry.signal import Emit

_log = structlog.get_logger()

_STARTUP_SECONDS = 30.0
_RETRY_SECONDS = 0.5
_LEAST_STUCK_SECONDS = 2.0
_LEAST_GONE_SECONDS, _MOST_GONE_SECONDS = 20.0, 120.0
# More than this has not passed for a process between two looks: it was frozen, or blocked.
_MOST_PER_LOOK_SECONDS = 0.5


class HeartbeatProcess:
    """Runs the module of the heartbeat process beside a worker.

    What it needs to know goes in by its standard input, because a command line can be
    readable by all users. The input stays open: its end tells the heartbeat process that the worker died.
    """

    def __init__(
        self,
        *,
        module: str,
        table_descriptor: int,
        orders: bytes,
        lease_seconds: float,
        beats: Callable[[], int],
        emit: Emit,
    ) -> None:
        """`beats` returns a number that changes for as long as the heartbeat lives and is not stuck."""
        self._module = module
        self._table_descriptor = table_descriptor
        self._orders = orders
        self._beats = beats
        self._emit = emit
        # Early enough for another one to renew what this one has just not renewed.
        self._stuck_seconds = max(lease_seconds / 5, _LEAST_STUCK_SECONDS)
        self._gone_seconds = min(max(2 * lease_seconds, _LEAST_GONE_SECONDS), _MOST_GONE_SECONDS)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False
        self.is_renewing = False
        self._seen = beats()
        self._looked_at = time.monotonic()
        # Seconds in which the worker itself ran, and how many there were at some moments.
        self._clock = 0.0
        self._beat_at = 0.0
        self._kept_at = 0.0

    async def start(self) -> None:
        """Start the heartbeat process and wait until Postgres has answered its first round."""
        read_end, write_end = os.pipe()
        try:
            await self._start(read_end, write_end)
        finally:
            os.close(read_end)
        self._beat_at = self._clock
        self.is_renewing = True

    async def _start(self, read_end: int, write_end: int) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - a fork, done in a moment
                [
                    sys.executable,
                    "-m",
                    self._module,
                    str(self._table_descriptor),
                    str(write_end),
                ],
                stdin=subprocess.PIPE,
                pass_fds=(self._table_descriptor, write_end),
            )
        except OSError as error:
            raise UnavailableError(f"the heartbeat process cannot be started: {error}") from error
        finally:
            os.close(write_end)
        try:
            self._instruct()
            is_ready = await _read_byte(read_end, within_seconds=_STARTUP_SECONDS)
        except (BlockingIOError, BrokenPipeError) as error:
            self._process.kill()
            self._end()
            raise UnavailableError("the heartbeat process did not start") from error
        if not is_ready:
            self._end()
            raise UnavailableError("the heartbeat process ended at once; its log says why")

    def look(self) -> None:
        """Look after it, a few times a second: is it there, and does it show life?"""
        now = time.monotonic()
        self._clock += min(now - self._looked_at, _MOST_PER_LOOK_SECONDS)
        self._looked_at = now
        if not self.is_renewing or self._process is None:
            return
        if (beats := self._beats()) != self._seen:
            self._seen, self._beat_at, self._kept_at = beats, self._clock, self._clock
        if self._process.poll() is not None:
            self.is_renewing = False
        elif (silent := self._clock - self._beat_at) > self._stuck_seconds:
            self.is_renewing = False
            _log.error("heartbeat_stalled", seconds=silent)
            self._process.kill()

    async def check(self) -> None:
        """Start it again if it has ended: the table still holds everything it needs."""
        if self._is_stopped or self._process is None or (code := self._process.poll()) is None:
            return
        self.is_renewing = False
        _log.error("heartbeat_ended", exit_code=code)
        self._end()
        began_at = time.monotonic()
        try:
            await self.start()
        except UnavailableError:
            await asyncio.sleep(_RETRY_SECONDS)  # Postgres may be away, and a start is no small thing
            raise
        _log.warning("heartbeat_restarted", seconds=time.monotonic() - began_at)

    @property
    def is_missing(self) -> bool:
        """True where there has been none that keeps for so long that there may never be one."""
        return not self.is_renewing and self._clock - self._kept_at > self._gone_seconds

    def excuse(self) -> None:
        """Count anew how long it has been missing: it could not have been there."""
        self._kept_at = self._clock

    @property
    def pid(self) -> int | None:
        """The process id, None where it does not run."""
        return self._process.pid if self._process is not None else None

    def stop(self) -> None:
        """End it for good."""
        self._is_stopped = True
        self._end()

    def _end(self) -> None:
        if self._process is None:
            return
        process = self._process
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        try:
            process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _instruct(self) -> None:
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.write(self._orders + b"\n")
        self._process.stdin.flush()


async def _read_byte(pipe: int, *, within_seconds: float) -> bytes:
    """Read what comes within this time: nothing at the pipe's end, else `BlockingIOError`.

    Not in a thread: those of the loop are the handlers' too, and may all be busy.
    """
    os.set_blocking(pipe, False)
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pipe, readable.set)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                await readable.wait()
    finally:
        loop.remove_reader(pipe)
    return os.read(pipe, 1)  # also where the time is over: the loop may have been blocked all the while


def table_size(concurrency: int) -> int:
    """Return how many slots a worker's table needs: running tasks, and as many that wait to be started."""
    return 4 * concurrency + 64
