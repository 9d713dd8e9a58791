"""The stage: servers and processes of the demo's own, in a temporary directory, gone when it closes."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from grns.errors import GrnsError
from grns.local import LocalStack
from grns.local.process import Process

LEASE_SECONDS = 5
CONCURRENCY = 16
_GRACE_SECONDS = 2
_STOP_SECONDS = 15.0


class Stage:
    """Servers, and processes of grns that know nothing but these servers."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="grns-demo-"))
        # What the user has set for other purposes, there or in files here, is not for the demo.
        for name in [name for name in os.environ if name.startswith("GRNS_")]:
            del os.environ[name]
        self._came_from = Path.cwd()
        os.chdir(self._directory)
        self._stack = LocalStack(self._directory / "servers")
        self.server: Process | None = None
        self.workers: dict[int, Process] = {}
        self._lost: set[int] = set()

    @property
    def database_url(self) -> str:
        """Where the truth is."""
        return self._stack.postgres.url

    @property
    def nats_url(self) -> str:
        """Where the messages are."""
        return self._stack.nats.url

    def open(self) -> None:
        """Start the servers."""
        self._stack.start()

    def start_server(self) -> None:
        """Start relay, reaper, retry scheduler, counter and janitor, in one process."""
        self.server = self._start("server", "server")

    def start_worker(self) -> None:
        """Start one more worker."""
        worker = self._start(
            f"worker-{len(self.workers) + 1}",
            *("worker", "workers.digest:pool", "--concurrency", str(CONCURRENCY)),
        )
        self.workers[worker.pid] = worker

    def kill(self, pid: int) -> None:
        """End a worker with SIGKILL: it gets no chance to say anything."""
        self._lost.add(pid)
        self.workers[pid].kill()

    def check(self) -> None:
        """Raise an error where a process has ended that nobody has killed."""
        alive = [self.server, *(worker for pid, worker in self.workers.items() if pid not in self._lost)]
        for process in alive:
            if process is not None and not process.running:
                raise GrnsError("a process of the demo has ended by itself")

    def logs(self) -> dict[str, str]:
        """Return the end of what each process has written."""
        return {
            path.stem: path.read_text(encoding="utf-8", errors="replace")[-2000:]
            for path in sorted(self._directory.glob("*.log"))
        }

    def close(self) -> None:
        """End every process, then the servers, and remove the directory."""
        processes = [*self.workers.values(), *([self.server] if self.server else [])]
        try:
            with ThreadPoolExecutor(len(processes) or 1) as pool:
                list(pool.map(_end, processes))
        finally:
            self._stack.stop()
            os.chdir(self._came_from)
            shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self, name: str, *arguments: str) -> Process:
        environment = {
            "GRNS_DATABASE_URL": self.database_url,
            "GRNS_NATS_URL": self.nats_url,
            "GRNS_LEASE_SECONDS": str(LEASE_SECONDS),
            "GRNS_SHUTDOWN_GRACE_SECONDS": str(_GRACE_SECONDS),
        }
        log = self._directory / f"{name}.log"
        process = Process([sys.executable, "-m", "grns", *arguments], log=log, environment=environment)
        process.start()
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _end(process: Process) -> None:
    process.stop(signal.SIGTERM, timeout_seconds=_STOP_SECONDS)
