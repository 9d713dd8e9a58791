"""`grns worker start`."""

from __future__ import annotations

import asyncio
import math
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import structlog

from grns.bootstrap import workers
from grns.bootstrap.app import App
from grns.cli.failure import note
from grns.cli.group import Command
from grns.cli.process import end_after, make_app, run, run_services
from grns.errors import InvalidInputError, SettingsError
from grns.settings import load
from grns.worker.pool import Pool

_log = structlog.get_logger()

PARENT = "--parent-descriptor"

_LOOK_SECONDS = 1.0
# Time beyond the grace period: to write results, and to close connections.
_LAST_WORDS_SECONDS = 15.0
_TARGET = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*)(?::([^\W\d]\w*))?")


class _Processes(click.IntRange):
    """A number, or `auto`: half of the cores that this process may use. Postgres and NATS need the rest."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if value == "auto":
            has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS
            cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
            return max(1, cores // 2)
        number: int = super().convert(value, param, ctx)
        return number


@click.command(
    cls=Command,
    examples=["grns worker start shop:pool", "grns worker start shop:pool --concurrency 50 --processes auto"],
)
@click.argument("target", metavar="MODULE:POOL")
@click.option(
    "--concurrency", type=click.IntRange(1, 100_000), help="Maximum concurrent handlers per process."
)
@click.option(
    "--processes",
    type=_Processes(1, 1000),
    default="1",
    show_default=True,
    metavar="NUMBER|auto",
    help="Number of worker processes; auto: half of the cores, at least 1.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Port of Prometheus metrics; process N uses this port + N.",
)
@click.option("--agent", metavar="NAME", help="Name of the agent that this worker is.")
@click.option("--reload", is_flag=True, help="Start again when a Python file below this directory changes.")
@click.option(PARENT, type=int, hidden=True)
def start(
    target: str,
    concurrency: int | None,
    processes: int,
    metrics_port: int | None,
    agent: str | None,
    reload: bool,
    parent_descriptor: int | None,
) -> None:
    """Run a pool's handlers until SIGTERM. Tasks that outlast the grace period are released."""
    settings = load(concurrency=concurrency, metrics_port=metrics_port, agent=agent)
    if reload:
        run_and_reload([sys.executable, "-m", "grns", *sys.argv[1:]], settings.shutdown_grace_seconds)
        return
    if processes > 1 and settings.agent is not None:
        raise SettingsError(f"agent {settings.agent} is one process: leave out --processes")
    if processes > 1:
        commands = _commands(target, concurrency, processes, settings.metrics_port)
        sys.exit(run_together(commands, grace_seconds=settings.shutdown_grace_seconds))
    if parent_descriptor is not None:
        end_with_parent(parent_descriptor)
    pool = load_pool(target)
    with ExitStack() as resources:
        app = make_app(settings, "worker", resources)
        run(settings, lambda: end_after(_work_and_flush(app, pool)))


def run_and_reload(command: list[str], grace_seconds: float) -> None:
    """Run a command without its `--reload`, and again after each change."""
    try:
        from watchfiles import PythonFilter, run_process
    except ModuleNotFoundError as error:
        missing = SettingsError("--reload needs the package watchfiles")
        missing.add_note("pip install 'grns[dev]'")
        raise missing from error
    run_process(
        ".",
        target=shlex.join([argument for argument in command if argument != "--reload"]),
        target_type="command",
        watch_filter=PythonFilter(),
        callback=lambda changes: _log.info("worker_reloaded", files=sorted({path for _, path in changes})),
        sigint_timeout=math.ceil(grace_seconds + _LAST_WORDS_SECONDS),
    )


async def _work_and_flush(app: App, pool: Pool) -> None:
    try:
        await _work(app, pool)
    finally:
        if app.spans.is_on:  # nothing else runs after the work: the process exits at once
            await asyncio.to_thread(app.spans.close)


async def _work(app: App, pool: Pool) -> None:
    size = max(app.settings.database_pool_size, 4)
    handlers_database = app.handlers_database()
    async with (
        app.connections("worker", size=size, is_service=True) as (database, transport),
        handlers_database.opened(),
    ):
        _log.info(
            "worker_started",
            agent_type=pool.agent_type,
            task_types=", ".join(sorted(pool.handlers)),
            slots=app.settings.concurrency,
            database=app.settings.database_host(),
            nats=app.settings.nats_hosts(),
        )
        await run_services([workers.worker(app, pool, database, transport, handlers_database)])


def load_pool(target: str) -> Pool:
    """Return the pool of `module:name`; the current directory is on the path."""
    match = _TARGET.fullmatch(target)
    if match is None:
        raise InvalidInputError(
            "bad_target", f"{target[:100]!r} does not name a pool: write MODULE:POOL, like shop:pool"
        )
    module_name, name = match[1], match[2] or "pool"
    pool = getattr(_import(module_name, target), name, None)
    _check_django(target)
    module = sys.modules[module_name]
    if pool is None:
        raise SettingsError(f"{module_name} has no {name}; pools there: {_pools(module)}")
    if not isinstance(pool, Pool):
        raise SettingsError(
            f"{target} is a {type(pool).__name__}, not a grns.Pool; pools there: {_pools(module)}"
        )
    if not pool.handlers:
        raise SettingsError(f"{target} has no handlers: register some with @pool.task")
    pool.agent_type  # noqa: B018 (raises if it has no name)
    return pool


def _import(module_name: str, target: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        missing = SettingsError(f"cannot import {module_name} here: {error}")
        file = f"{module_name.replace('.', '/')}.py"
        missing.add_note(
            f"grns worker start {target}  (in the directory in which {file} is)"
            if error.name is not None and f"{module_name}.".startswith(f"{error.name}.")
            else f"python -c 'import {module_name}'"
        )
        raise missing from error
    except Exception as error:  # the user's module can raise anything
        broken = SettingsError(f"importing {module_name} raised {type(error).__name__}: {error}")
        is_django = type(error).__module__.startswith("django.")  # it is not set up
        broken.add_note(
            f"python manage.py grns_worker {target}" if is_django else f"python -c 'import {module_name}'"
        )
        raise broken from error


def _check_django(target: str) -> None:
    """Raise SettingsError if the pool has imported our integration of a Django that is not set up.

    A pool may import models only in its handlers: where there is a `manage.py`, write a note.
    """
    if "grns.integrations.django" in sys.modules and not _is_django_ready():
        unset = SettingsError(f"{target} uses Django, which is not set up here")
        unset.add_note(f"python manage.py grns_worker {target}")
        raise unset
    if Path("manage.py").exists() and not _is_django_ready():
        note(f"Django is not set up here; this sets it up: python manage.py grns_worker {target}")


def _is_django_ready() -> bool:
    apps = sys.modules.get("django.apps")
    return apps is not None and apps.apps.ready


def _pools(module: ModuleType) -> str:
    return ", ".join(name for name, value in vars(module).items() if isinstance(value, Pool)) or "none"


def _commands(
    target: str, concurrency: int | None, processes: int, metrics_port: int | None
) -> list[list[str]]:
    """Return the command of each process; each has a port of its own."""
    command = [sys.executable, "-m", "grns", "worker", "start", target]
    if concurrency is not None:
        command += ["--concurrency", str(concurrency)]
    if metrics_port is None:
        return [command] * processes
    ports = [metrics_port + place if metrics_port else 0 for place in range(processes)]
    return [[*command, "--metrics-port", str(port)] for port in ports]


def run_together(commands: Sequence[Sequence[str]], *, grace_seconds: float) -> int:
    """Run commands until all have ended, and return the first exit code that is not 0.

    Signals are passed on. If a process ends without a signal, the others are terminated, and killed after
    the grace period: the supervisor of this process sees it end, and starts all of them again.
    """
    signals = _signal_pipe()  # before a process runs that a signal could leave behind
    guard, _held = os.pipe()  # its other end is closed by the end of this process, however it comes
    running = [_start([*command, PARENT, str(guard)], guard) for command in commands]
    codes: list[int] = []
    is_ending, is_own_signal, kill_at = False, False, math.inf
    while running:
        for number in _next_signals(signals, kill_at - time.monotonic()):
            if number == signal.SIGCHLD:
                continue
            if not is_own_signal:
                _signal_all(running, number)
            # A signal that we sent ourselves is not passed on: it would be a second request.
            is_ending, is_own_signal = True, False
        if time.monotonic() >= kill_at:
            _signal_all(running, signal.SIGKILL)
            kill_at = math.inf
        codes += [abs(child.returncode) for child in running if child.poll() is not None]
        running = [child for child in running if child.returncode is None]
        if codes and not is_ending:
            _signal_all(running, signal.SIGTERM)
            is_ending, is_own_signal = True, True
            kill_at = time.monotonic() + grace_seconds + _LAST_WORDS_SECONDS
    return next((code for code in codes if code), 0)


def _next_signals(signals: int, within_seconds: float) -> bytes:
    """Return the numbers of the next signals; empty after the time."""
    timeout = max(0.0, within_seconds) if within_seconds < math.inf else None
    readable, _, _ = select.select([signals], [], [], timeout)
    return os.read(signals, 1024) if readable else b""


def end_with_parent(descriptor: int) -> None:
    """Terminate this process as soon as its parent has ended."""
    os.set_inheritable(descriptor, False)

    def watch() -> None:
        os.read(descriptor, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _signal_pipe() -> int:
    """Return a descriptor from which the number of each signal can be read."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGCHLD:  # as `nohup` does
            signal.signal(number, lambda _number, _frame: None)
    return reading


def _start(command: Sequence[str], guard: int) -> subprocess.Popen[bytes]:
    # A terminal's Ctrl-C is for the parent, which passes it on: twice would be at once.
    return subprocess.Popen(command, start_new_session=True, pass_fds=(guard,))


def _signal_all(children: Sequence[subprocess.Popen[bytes]], number: int) -> None:
    for child in children:
        # The end of a terminal is not a reason to lose results.
        child.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)
