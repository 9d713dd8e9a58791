"""The base class of the two servers."""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from grns.dev.servers.port import TAKEN, Port
from grns.dev.servers.process import EarlyExit, Process
from grns.errors import LocalServerError

_START_SECONDS = 30.0
_STOP_SECONDS = 30.0
_PAUSE_SECONDS = 0.05


class Server(ABC):
    """Start, stop and crash one server whose data, configuration and log are under `data`.

    All calls block and may come from any thread, one at a time. Also a context manager.
    """

    _stop_signal: ClassVar[signal.Signals]
    _passing: ClassVar[Sequence[str]] = ()

    def __init__(self, data: Path, *, port: int | None, preferred_port: int | None) -> None:
        self.data = data.absolute()
        self._port = Port(port, preferred=preferred_port)
        self._process: Process | None = None

    @property
    def port(self) -> int:
        """Return the port; raises LocalServerError before the first start, when none was given."""
        return self._port.number

    @property
    def pid(self) -> int:
        """Return the id of the latest server process; raises LocalServerError before the first start."""
        if self._process is None:
            raise LocalServerError("the server has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the server process lives, frozen or not."""
        return self._process is not None and self._process.running

    def start(self) -> None:
        """Start the server and return when it serves; does nothing when it runs already.

        Raises LocalServerError with the end of the server's log.
        """
        if self.running:
            return
        self.data.mkdir(parents=True, exist_ok=True)
        self._prepare()
        self._port.open(self._start_on)

    def stop(self) -> None:
        """Shut down cleanly, with SIGKILL after 30 seconds; does nothing when the server does not run."""
        if self._process is not None:
            self._process.stop(self._stop_signal, timeout_seconds=_STOP_SECONDS)

    def kill(self) -> None:
        """Crash the server with SIGKILL; what it has committed or acknowledged stays on disk."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Stop the server if it runs, and start it again on the same port and data."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @abstractmethod
    def _prepare(self) -> None:
        """Create everything that does not depend on the port."""

    @abstractmethod
    def _start_on(self, port: int) -> None:
        """Create a process for this port and `_launch` it."""

    def _launch(self, process: Process, ready: Callable[[], bool]) -> None:
        """Start `process` until `ready()`; retry if it ends early for a temporary reason."""
        self._process = process
        # On a port that was ours, only an ending predecessor or a client can be in the way.
        passing = (*self._passing, *TAKEN) if self._port.proven else self._passing
        deadline = time.monotonic() + _START_SECONDS
        while True:
            process.start()
            try:
                process.wait_ready(ready, deadline=deadline)
            except EarlyExit as end:
                if time.monotonic() > deadline or not any(text in end.log for text in passing):
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                return
