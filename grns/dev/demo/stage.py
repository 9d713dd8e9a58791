"""The stage: servers and processes of the demo's own, in a temporary directory, gone when it closes."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from grns.dev.demo import material
from grns.dev.servers import LocalStack
from grns.dev.servers.process import Process
from grns.dev.servers.processes import ProcessGroup

LEASE_SECONDS = 5
CONCURRENCY = 16
_GRACE_SECONDS = 2


class DemoStage:
    """Servers, and processes of grns that know nothing but these servers."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="grns-demo-"))
        # What the user has set for other purposes, there or in files here, is not for the demo.
        for name in [name for name in os.environ if name.startswith("GRNS_")]:
            del os.environ[name]
        self._came_from = Path.cwd()
        os.chdir(self._directory)
        self._stack = LocalStack(self._directory / "servers")
        self._crew = ProcessGroup(self._directory)
        self.workers: dict[int, Process] = {}

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
        self._start("server", "server")

    def start_worker(self) -> None:
        """Start one more worker."""
        worker = self._start(
            f"worker-{len(self.workers) + 1}",
            *("worker", "start", "workers.digest:pool", "--concurrency", str(CONCURRENCY)),
        )
        self.workers[worker.pid] = worker

    def kill(self, pid: int) -> None:
        """End a worker with SIGKILL: it gets no chance to say anything."""
        self._crew.kill(self.workers[pid])

    def check(self) -> None:
        """Raise an error where a process has ended that nobody has killed."""
        self._crew.check()

    def logs(self) -> dict[str, str]:
        """Return the end of what each process has written."""
        return self._crew.logs()

    def close(self) -> None:
        """End every process, then the servers, and remove the directory."""
        try:
            self._crew.end()
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
            "GRNS_DIGEST_ROOT": os.pathsep.join(map(str, material.roots())),
        }
        return self._crew.start(name, *arguments, environment=environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
