"""`grns worker MODULE:pool`, and the keeper that each worker starts for itself."""

from __future__ import annotations

import os
import re
import signal
import sys
from contextlib import ExitStack
from importlib import import_module
from types import ModuleType

import click

from grns.bootstrap import workers
from grns.bootstrap.app import App
from grns.bootstrap.workers import HeartbeatConfig
from grns.cli.process import end_after, make_app, run, run_services
from grns.cli.siblings import PARENT, end_with_parent, run_together
from grns.errors import InvalidInputError, SettingsError
from grns.settings import load
from grns.telemetry.facts.work import WorkerServes
from grns.worker.pool import Pool

_LOOK_SECONDS = 1.0
_TARGET = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*)(?::([^\W\d]\w*))?")


@click.command()
@click.argument("target", metavar="MODULE:POOL")
@click.option(
    "--concurrency", type=click.IntRange(1, 100_000), help="Maximum concurrent handlers per process."
)
@click.option("--processes", type=click.IntRange(1, 1000), default=1, help="Number of worker processes.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Port of Prometheus metrics; process N uses this port + N.",
)
@click.option(PARENT, type=int, hidden=True)
def worker(
    target: str,
    concurrency: int | None,
    processes: int,
    metrics_port: int | None,
    parent_descriptor: int | None,
) -> None:
    """Run a pool's handlers until SIGTERM. Tasks that outlast the grace period are released."""
    settings = load(concurrency=concurrency, metrics_port=metrics_port)
    if processes > 1:
        commands = _commands(target, concurrency, processes, settings.metrics_port)
        sys.exit(run_together(commands, grace_seconds=settings.shutdown_grace_seconds))
    if parent_descriptor is not None:
        end_with_parent(parent_descriptor)
    pool = load_pool(target)
    with ExitStack() as resources:
        app = make_app(settings, "worker", resources)
        run(settings, lambda: end_after(_work_and_tell(app, pool)))


async def _work_and_tell(app: App, pool: Pool) -> None:
    import asyncio

    try:
        await _work(app, pool)
    finally:
        if app.spans.is_on:  # the process ends without a look back
            await asyncio.to_thread(app.spans.close)


async def _work(app: App, pool: Pool) -> None:
    size = max(app.settings.database_pool_size, 4)
    handlers_database = app.handlers_database()
    async with (
        app.connections("worker", size=size, is_service=True) as (database, transport),
        handlers_database.opened(),
    ):
        app.telemetry.emit(
            WorkerServes(
                pool.agent_type, ", ".join(sorted(pool.handlers)), app.settings.concurrency,
                app.settings.database_host(), app.settings.nats_hosts(),
            )
        )  # fmt: skip
        await run_services([workers.worker(app, pool, database, transport, handlers_database)])


@click.command(hidden=True)
@click.argument("book_descriptor", type=int)
@click.argument("ready_descriptor", type=int)
def heartbeat(book_descriptor: int, ready_descriptor: int) -> None:
    """Renew the leases of the worker that started this process."""
    # A terminal's Ctrl-C is for the worker: it ends its keeper when its last task has ended.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if not (line := sys.stdin.buffer.readline()):
        return  # the worker died before it had said anything
    orders = HeartbeatConfig.read(line, book_descriptor)
    with ExitStack() as resources:
        quiet = {"metrics_port": None, "otlp_endpoint": None}
        app = make_app(orders.settings.model_copy(update=quiet), "heartbeat", resources)
        run(orders.settings, lambda: _keep(app, orders, ready_descriptor))


async def _keep(app: App, orders: HeartbeatConfig, ready_descriptor: int) -> None:
    import asyncio

    def end_with_worker() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            os._exit(0)

    async def end_without_worker() -> None:
        """A child that the worker forked may hold the other end of our input open."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if os.getppid() != orders.worker_pid:
                os._exit(0)

    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), end_with_worker)
    looking = loop.create_task(end_without_worker())
    async with app.connections("heartbeat", size=2, is_service=True) as (database, transport):
        os.write(ready_descriptor, b".")
        os.close(ready_descriptor)
        await workers.heartbeat(app, orders, database, transport).run()
    looking.cancel()


def load_pool(target: str) -> Pool:
    """Return the pool that `module:name` names; the current directory is on the path."""
    named = _TARGET.fullmatch(target)
    if named is None:
        raise InvalidInputError(
            "bad_target", f"{target[:100]!r} names no pool: write MODULE:POOL, like shop:pool"
        )
    module_name, name = named[1], named[2] or "pool"
    sys.path.insert(0, os.getcwd())
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        missing = SettingsError(f"cannot import {module_name} here: {error}")
        file = f"{module_name.replace('.', '/')}.py"
        missing.add_note(
            f"grns worker {target}  (in the directory in which {file} is)"
            if error.name is not None and f"{module_name}.".startswith(f"{error.name}.")
            else f"python -c 'import {module_name}'"
        )
        raise missing from error
    except Exception as error:  # whatever the user's module does when it is imported
        broken = SettingsError(f"importing {module_name} raised {type(error).__name__}: {error}")
        broken.add_note(f"python -c 'import {module_name}'")
        raise broken from error
    found = getattr(module, name, None)
    if found is None:
        raise SettingsError(f"{module_name} has no {name}; pools there: {_pools(module)}")
    if not isinstance(found, Pool):
        raise SettingsError(
            f"{target} is a {type(found).__name__}, not a grns.Pool; pools there: {_pools(module)}"
        )
    if not found.handlers:
        raise SettingsError(f"{target} has no handlers: register some with @pool.task(...)")
    return found


def _pools(module: ModuleType) -> str:
    return ", ".join(name for name, value in vars(module).items() if isinstance(value, Pool)) or "none"


def _commands(
    target: str, concurrency: int | None, processes: int, metrics_port: int | None
) -> list[list[str]]:
    """Return the command of each process; each has a port of its own."""
    command = [sys.executable, "-m", "grns", "worker", target]
    if concurrency is not None:
        command += ["--concurrency", str(concurrency)]
    if metrics_port is None:
        return [command] * processes
    ports = [metrics_port + place if metrics_port else 0 for place in range(processes)]
    return [[*command, "--metrics-port", str(port)] for port in ports]
