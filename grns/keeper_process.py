"""The keeper's process, as its worker sees it: started, watched, started again, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys

from grns.errors import Unavailable
from grns.telemetry.emit import Emit
from grns.telemetry.facts import KeeperRestarted

_STARTUP_SECONDS = 30.0
_RETRY_SECONDS = 0.5


class KeeperProcess:
    """Runs `python -m grns keeper` beside a worker.

    What it needs to know goes in by its standard input, because a command line can be
    read by everybody. The input stays open: its end tells the keeper that the worker died.
    """

    def __init__(self, *, book_descriptor: int, orders: bytes, emit: Emit) -> None:
        self._book_descriptor = book_descriptor
        self._orders = orders
        self._emit = emit
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    async def start(self) -> None:
        """Start the keeper and wait until it keeps."""
        read_end, write_end = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - a fork, done in a moment
                [sys.executable, "-m", "grns", "keeper", str(self._book_descriptor), str(write_end)],
                stdin=subprocess.PIPE,
                pass_fds=(self._book_descriptor, write_end),
            )
        finally:
            os.close(write_end)
        try:
            self._instruct()
            is_ready = await asyncio.wait_for(asyncio.to_thread(os.read, read_end, 1), _STARTUP_SECONDS)
        except (TimeoutError, BrokenPipeError) as error:
            self._end()
            raise Unavailable("the keeper did not start") from error
        finally:
            os.close(read_end)
        if not is_ready:
            self._end()
            raise Unavailable("the keeper ended at once; its log says why")

    async def check(self) -> None:
        """Start it again if it has ended: the book still holds everything it needs."""
        if self._is_stopped or self._process is None:
            return
        if (code := self._process.poll()) is not None:
            self._emit(KeeperRestarted(code))
            try:
                await self.start()
            except Unavailable:
                await asyncio.sleep(_RETRY_SECONDS)  # Postgres may be away, and a start is no small thing
                raise

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


def book_size(concurrency: int) -> int:
    """Return how many slots a worker's book needs: running tasks, and as many that wait to be started."""
    return 4 * concurrency + 64
