"""The demo, step by step: submit, kill a worker, wait for the end, compare."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import grns
from grns.dev.demo import checks, inputs
from grns.dev.servers import LocalStack
from grns.dev.servers.process import Process, ProcessGroup
from grns.errors import GrnsError
from grns.model.task import TaskStatus
from grns.postgres import migrate
from grns.runtime.signals import end_on_signals

_WORKERS, _CONCURRENCY = 2, 16
_FLAKY, _HOPELESS = 5, 3
_IN_WORKFLOW = 20  # files
_LEASE_SECONDS, _GRACE_SECONDS = 5, 2
_KILL_AFTER = 1 / 4  # of the tasks have ended
_LEAST_HELD = 10  # tasks of the worker that is killed
_LIMIT_SECONDS = 120.0
_LATE_SECONDS = 10.0
_POLL_SECONDS = 0.05
_LINE_SECONDS = 2.0
_MOST_DIFFERENCES = 20
_INTERRUPTED = 130


class DemoError(GrnsError):
    """The demo could not run to its end."""


class DemoServers:
    """Postgres, NATS and processes of grns in a temporary directory."""

    def __init__(self, directory: Path) -> None:
        self._stack = LocalStack(directory / "servers")
        self._processes = ProcessGroup(directory)
        self.workers: dict[int, Process] = {}
        self.logs, self.check = self._processes.logs, self._processes.check

    def start(self) -> None:
        """Start Postgres and NATS."""
        self._stack.start()
        self.database_url, self.nats_url = self._stack.postgres.url, self._stack.nats.url

    def start_processes(self) -> None:
        """Start the daemons in one process, and the workers."""
        self._run("server", "server")
        for number in range(1, _WORKERS + 1):
            arguments = ("start", "workers.digest:pool", "--concurrency", str(_CONCURRENCY))
            worker = self._run(f"worker-{number}", "worker", *arguments)
            self.workers[worker.pid] = worker

    def _run(self, name: str, *arguments: str) -> Process:
        environment = {
            "GRNS_DATABASE_URL": self.database_url,
            "GRNS_NATS_URL": self.nats_url,
            "GRNS_LEASE_SECONDS": str(_LEASE_SECONDS),
            "GRNS_SHUTDOWN_GRACE_SECONDS": str(_GRACE_SECONDS),
            "GRNS_DIGEST_ROOT": os.pathsep.join(map(str, inputs.roots())),
        }
        return self._processes.start(name, *arguments, environment=environment)

    def kill(self, pid: int) -> None:
        """End a worker with SIGKILL."""
        self._processes.kill(self.workers[pid])

    def stop(self) -> None:
        """End the processes, then the servers."""
        try:
            self._processes.end()
        finally:
            self._stack.stop()


@contextmanager
def _servers() -> Iterator[DemoServers]:
    """Use a temporary directory without the caller's settings, and clean up whatever happens."""
    for name in [name for name in os.environ if name.startswith("GRNS_")]:
        del os.environ[name]
    directory, previous = Path(tempfile.mkdtemp(prefix="grns-demo-")), Path.cwd()
    os.chdir(directory)
    servers = DemoServers(directory)
    try:
        yield servers
    finally:
        try:
            servers.stop()
        finally:
            os.chdir(previous)
            shutil.rmtree(directory, ignore_errors=True)


class DemoScreen:
    """Output: a progress bar on a terminal, lines elsewhere."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=self.console, transient=True, disable=not self.console.is_terminal,
        )  # fmt: skip
        self._bar = self.progress.add_task("tasks", total=None)
        self._started_at = self._line_at = time.monotonic()

    def print(self, text: str) -> None:
        """Print one line with the time since the start."""
        seconds = time.monotonic() - self._started_at
        self.console.print(f"{seconds:5.1f} s  {text}", markup=False, soft_wrap=True)

    def update(self, ended: int, total: int, running: int) -> None:
        """Show the progress of the tasks."""
        self.progress.update(self._bar, completed=ended, total=total, description=f"{running} running")
        now = time.monotonic()
        if self.progress.disable and now - self._line_at >= _LINE_SECONDS:
            self._line_at = now
            self.print(f"{ended} of {total} tasks have ended, {running} are running")


def run(file_count: int) -> int:
    """Run the demo, clean up, and return the exit code."""
    try:
        return asyncio.run(_run(file_count))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return _INTERRUPTED


async def _run(file_count: int) -> int:
    end_on_signals()
    screen = DemoScreen()
    with screen.progress, _servers() as servers:
        try:
            async with asyncio.timeout(_LIMIT_SECONDS), AsyncExitStack() as resources:
                differences = await Demo(servers, screen, resources).run(inputs.files(file_count))
        except (GrnsError, TimeoutError) as error:
            screen.progress.stop()
            screen.print(f"FAILED: {error or f'not finished after {_LIMIT_SECONDS:.0f} s'}")
            async for line in _diagnosis(servers):
                screen.console.print(line, markup=False, soft_wrap=True)
            return 1
        screen.print("stopping the processes and the servers")
    return 1 if differences else 0


@dataclass(slots=True, eq=False)
class Demo:
    """One run. Its steps are its methods, in order."""

    servers: DemoServers
    screen: DemoScreen
    resources: AsyncExitStack
    database: checks.DemoDatabase = field(init=False)
    observer: checks.EventObserver = field(init=False)
    total: int = field(default=0, init=False)
    added_up: list[str] = field(default_factory=list, init=False)

    async def run(self, paths: list[Path]) -> list[str]:
        """Run all steps; return the differences."""
        await self.start()
        invalid = await inputs.publish_invalid(self.servers.nats_url)
        self.screen.print("a foreign system sent a malformed message and a command for an unknown task")
        submitted = await self.submit([str(path) for path in paths])
        held = await self.kill_worker()
        digests = await self.resources.enter_async_context(inputs.expected_digests(paths))
        await self.wait_for_end(dead_letters=len(invalid))
        self.screen.print("comparing every result with its file, and every task with its events")
        state = await self.database.state()
        differences = list(
            checks.differences(
                state,
                self.observer,
                submitted=submitted,
                digests=await digests,
                added_up=self.added_up,
                invalid=invalid,
                held=held,
            )
        )
        self.conclude(state, differences)
        return differences

    async def start(self) -> None:
        """Start servers, processes and connections."""
        self.screen.print("starting Postgres and NATS in a temporary directory")
        self.servers.start()  # blocks, so that Ctrl-C ends it between two servers
        await migrate.upgrade(self.servers.database_url)
        enter = self.resources.enter_async_context
        self.database = await enter(checks.open_database(self.servers.database_url))
        self.observer = await enter(checks.observe_events(self.servers.nats_url))
        self.servers.start_processes()
        await _until(self._has_workers)
        self.screen.print(f"the daemons (relay, reaper, scheduler, …) and {_WORKERS} workers are running")

    async def _has_workers(self) -> bool:
        self.servers.check()
        return len(await self.database.workers()) == _WORKERS

    async def submit(self, paths: list[str]) -> Counter[str]:
        """Submit one task per file, tasks that fail, and a workflow; return the number per type."""
        tasks: list[dict[str, Any]] = [{"task": "flaky", "priority": 1}] * _FLAKY
        tasks += [{"task": "hopeless", "priority": 1}] * _HOPELESS
        tasks += [{"task": "digest_file", "payload": {"path": path}} for path in paths]
        urls = {"database_url": self.servers.database_url, "nats_url": self.servers.nats_url}
        self.added_up = paths[:: max(1, len(paths) // _IN_WORKFLOW)][:_IN_WORKFLOW]
        async with grns.connect(**urls) as client:
            await client.submit_many([{"pool": "digest", **task} for task in tasks])
            await self._submit_workflow(client)
        self.total = len(tasks) + len(self.added_up) + 2
        self.screen.print(
            f"submitted {self.total} tasks: {len(paths)} Python files, {_FLAKY} that fail once,"
            f" {_HOPELESS} that always fail, and a workflow: find {len(self.added_up)} files, digest each,"
            " add up their lines"
        )
        counts = Counter(task["task"] for task in tasks)
        return counts + Counter({"find_files": 1, "add_up": 1, "digest_file": len(self.added_up)})

    async def _submit_workflow(self, client: grns.Client) -> None:
        flow = client.workflow("lines of some files")
        options: dict[str, Any] = {"pool": "digest", "priority": 1}
        first = flow.task("find_files", {"paths": self.added_up}, **options)
        digests = [
            flow.task("digest_file", {"path": path}, needs=[first], **options) for path in self.added_up
        ]
        flow.task("add_up", needs=digests, **options)
        await flow.submit()

    async def kill_worker(self) -> frozenset[str]:
        """Kill a worker once a quarter of the tasks has ended; return the ids of the tasks that it ran."""
        while (ended := await self._progress()) < self.total:
            if ended >= self.total * _KILL_AFTER and (held := await self._try_kill()):
                return held
            await asyncio.sleep(_POLL_SECONDS)
        raise DemoError(f"no worker ran {_LEAST_HELD} tasks at once: the kill would hit nothing")

    async def _try_kill(self) -> frozenset[str]:
        """Kill the busiest worker if it runs enough tasks.

        The worker is frozen first, so that it claims nothing between the look and the kill. Postgres still
        executes the statements that it had sent: its tasks are known once its connections have ended.
        """
        running = await self.database.running()
        agent_id = max(running, key=lambda name: len(running[name]), default=None)
        if agent_id is None or len(running[agent_id]) < _LEAST_HELD:
            return frozenset()
        pid = (await self.database.workers())[agent_id]
        worker = self.servers.workers[pid]
        worker.freeze()
        try:
            if len((await self.database.running()).get(agent_id, ())) < _LEAST_HELD:
                return frozenset()
            self.servers.kill(pid)
            await _until(lambda: self.database.has_disconnected(pid))
        finally:
            worker.thaw()
        held = (await self.database.running()).get(agent_id, frozenset())
        self.screen.print(
            f"killed worker {pid} with SIGKILL while it ran {len(held)} tasks; their leases expire within"
            f" {_LEASE_SECONDS} s"
        )
        return held

    async def wait_for_end(self, *, dead_letters: int) -> None:
        """Wait until every task has ended, every dead letter exists, and every event has arrived."""
        await _until(lambda: self._has_ended(dead_letters))
        tasks = (await self.database.state()).tasks
        with suppress(TimeoutError):  # the comparison reports what is missing
            async with asyncio.timeout(_LATE_SECONDS):
                await _until(lambda: self.observer.has_all(tasks))

    async def _has_ended(self, dead_letters: int) -> bool:
        return (
            await self._progress() == self.total and len(await self.database.dead_letters()) >= dead_letters
        )

    async def _progress(self) -> int:
        self.servers.check()
        counts = await self.database.counts()
        ended = checks.ended(counts)
        self.screen.update(ended, self.total, counts.get(TaskStatus.RUNNING, 0))
        return ended

    def conclude(self, state: checks.DemoState, differences: list[str]) -> None:
        """Print the table and the differences."""
        self.screen.progress.stop()
        self.screen.console.print(checks.summary(state, self.observer))
        for difference in differences[:_MOST_DIFFERENCES]:
            self.screen.print(f"DIFFERENT  {difference}")
        if len(differences) > _MOST_DIFFERENCES:
            self.screen.print(f"… and {len(differences) - _MOST_DIFFERENCES} more")
        verdict = f"{len(differences)} differences" if differences else "all results and statuses agree"
        total = next((task.result for task in state.tasks if task.task_type == "add_up"), None) or {}
        self.screen.print(
            f"the workflow has counted {total.get('lines', 0):,} lines in {total.get('files', 0)} files"
        )
        self.screen.print(f"{len(state.tasks)} tasks compared: {verdict}")


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await condition():
            return
        await asyncio.sleep(_POLL_SECONDS)


async def _diagnosis(servers: DemoServers) -> AsyncIterator[str]:
    """Yield the state of a run that failed."""
    try:
        async with asyncio.timeout(_LATE_SECONDS), checks.open_database(servers.database_url) as database:
            yield f"tasks: {dict(await database.counts())}"
            yield f"running: { {name: len(ids) for name, ids in (await database.running()).items()} }"
            yield f"workers: {await database.workers()}"
            yield f"dead letters: {[reason for reason, _ in await database.dead_letters()]}"
    except Exception as error:  # the cause of the failure can also break these queries
        yield f"cannot read Postgres: {error!r}"
    for name, text in servers.logs().items():
        yield f"--- end of the log of {name}\n{text}"
