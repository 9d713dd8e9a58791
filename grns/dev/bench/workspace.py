"""A temporary database, streams and directory on the servers to measure; its processes and progress bars."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import SecretStr
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from grns.bootstrap.app import App
from grns.dev.bench.plan import Plan
from grns.dev.servers.process import ProcessGroup
from grns.errors import GrnsError
from grns.model import server_url
from grns.nats import JetStream
from grns.postgres import migrate, scratch
from grns.postgres.database import Database
from grns.settings import Settings, variables

Step = Callable[[int], object]


class BenchProgress:
    """Progress bars on stderr, which disappear at the end."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=Console(stderr=True, highlight=False), transient=True, disable=not sys.stderr.isatty(),
        )  # fmt: skip

    def say(self, text: str) -> None:
        """Print one line."""
        self._progress.console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def phase(self, name: str, total: int) -> Iterator[Step]:
        """Show a bar while a step runs; yield a function that sets how much is done."""
        bar = self._progress.add_task(name, total=total)
        yield lambda done: self._progress.update(bar, completed=done)
        self._progress.update(bar, completed=total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


Say = Callable[[str], None]

_GRACE_SECONDS = 2.0
# No message is larger, and a task has one command and three events.
_MESSAGE_BYTES, _COMMANDS, _EVENTS = 1024, 1, 3
_SPARE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BenchWorkspace:
    """Settings that lead only to the benchmark's database and streams, and a directory for logs."""

    settings: Settings
    directory: Path


@asynccontextmanager
async def temporary(settings: Settings, plan: Plan, say: Say) -> AsyncIterator[BenchWorkspace]:
    """Create a workspace on the servers of `settings`, and remove it at the end, also after an error.

    Workspaces of killed runs are removed first. Nothing is created unless both servers answer.
    """
    name = scratch.new_name()
    url = settings.require_database_url()
    ours = _settings(settings, plan, name)
    async with scratch.announced(url, name) as server, _broker(ours) as broker:
        for left in await scratch.left_over(server):
            if await _remove(server, settings, left, say):
                say(f"removed {left}, left by a killed run")
        try:
            await scratch.make(server, name)
            await migrate.upgrade(ours.require_database_url())
            await broker.provision()
            yield BenchWorkspace(ours, _make_directory(name))
        finally:
            await _undisturbed(_remove(server, settings, name, say))


async def _undisturbed(work: Coroutine[Any, Any, object]) -> None:
    """Finish the work despite a cancellation; a second one ends it."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _remove(server: Database, settings: Settings, name: str, say: Say) -> bool:
    """Remove a workspace; print an error and return False if that fails.

    The database goes last: as long as it exists, the next run removes the rest.
    """
    shutil.rmtree(_directory(name), ignore_errors=True)
    try:
        async with _broker(settings.model_copy(update={"nats_namespace": name})) as broker:
            await broker.remove()
        await scratch.drop(server, name)
    except GrnsError as error:
        say(f"{name} is left behind, and the next `grns admin bench` here removes it: {error}")
        return False
    return True


@asynccontextmanager
async def _broker(settings: Settings) -> AsyncIterator[JetStream]:
    transport = App(settings).transport("bench")
    await transport.connect()
    try:
        yield transport
    finally:
        await transport.close()


def _settings(settings: Settings, plan: Plan, name: str) -> Settings:
    """Return the user's settings for the workspace, without those that would disturb a measurement."""
    url = server_url.with_database(settings.require_database_url(), name)
    credentials = settings.nats_credentials_file
    room = _MESSAGE_BYTES * plan.all_tasks
    return settings.model_copy(
        update={
            "database_url": SecretStr(url),
            "nats_credentials_file": credentials and credentials.absolute(),  # processes run elsewhere
            "nats_namespace": name,
            "nats_manage": "apply",
            # JetStream reserves the maximum of each stream; leave room for the user's own streams.
            "nats_cmd_max_bytes": _SPARE_BYTES + _COMMANDS * room,
            "nats_evt_max_bytes": _SPARE_BYTES + _EVENTS * room,
            "nats_dlq_max_bytes": _SPARE_BYTES,
            "concurrency": plan.concurrency,
            "shutdown_grace_seconds": _GRACE_SECONDS,
            "metrics_port": None,
            "log_level": "warning",
        }
    )


def _make_directory(name: str) -> Path:
    directory = _directory(name)
    directory.mkdir(mode=0o700)
    return directory


def _directory(name: str) -> Path:
    return Path(tempfile.gettempdir(), name)


class BenchProcesses:
    """The measured processes: all daemons in one, a worker in another. They end with this process."""

    def __init__(self, workspace: BenchWorkspace) -> None:
        self._processes = ProcessGroup(workspace.directory)
        # A database URL may leave parts to the PG* variables.
        postgres = {name: value for name, value in os.environ.items() if name.startswith("PG")}
        self._environment = postgres | variables(workspace.settings)

    def start_server(self) -> None:
        """Start relay, reaper, retry scheduler and janitor, in one process."""
        self._processes.start("server", "server", environment=self._environment)

    def start_worker(self) -> None:
        """Start the worker."""
        self._processes.start(
            "worker", "worker", "start", "grns.dev.bench.pool:pool", environment=self._environment
        )

    def check(self) -> None:
        """Raise an error if a process has ended."""
        self._processes.check()

    def logs(self) -> dict[str, str]:
        """Return the last lines of each log."""
        return self._processes.logs()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.end()
