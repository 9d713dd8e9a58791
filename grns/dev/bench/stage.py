"""The processes that are measured: all daemons in one, a worker in another, as anybody starts them."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self

from grns.dev.bench.place import BenchDatabase
from grns.dev.servers.process import ProcessGroup
from grns.settings import variables


class BenchStage:
    """Processes that know nothing but their place; they end with this one."""

    def __init__(self, place: BenchDatabase) -> None:
        self._crew = ProcessGroup(place.directory)
        # What a URL does not say of Postgres, it may leave to variables of Postgres' own.
        postgres = {name: value for name, value in os.environ.items() if name.startswith("PG")}
        self._environment = postgres | variables(place.settings)

    def start_server(self) -> None:
        """Start relay, reaper, retry scheduler and janitor, in one process."""
        self._crew.start("server", "server", environment=self._environment)

    def start_worker(self) -> None:
        """Start the worker."""
        self._crew.start(
            "worker", "worker", "start", "grns.dev.bench.pool:pool", environment=self._environment
        )

    def check(self) -> None:
        """Raise an error where a process has ended by itself."""
        self._crew.check()

    def logs(self) -> dict[str, str]:
        """Return the end of what each process has written."""
        return self._crew.logs()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._crew.end()
