"""`grns server`, and each daemon as a process of its own."""

from __future__ import annotations

from contextlib import ExitStack

import click

from grns.app import App
from grns.cli.process import make_app, run, run_services
from grns.errors import Unavailable
from grns.settings import load

_ALL = ("relay", "reaper", "retry-scheduler", "counter", "janitor", "operation-runner")


def _run(names: tuple[str, ...], service: str, metrics_port: int | None) -> None:
    settings = load(metrics_port=metrics_port)
    with ExitStack() as resources:
        app = make_app(settings, service, resources)
        run(settings, lambda: _serve(app, names, service))


async def _serve(app: App, names: tuple[str, ...], service: str) -> None:
    async with app.connections(service, is_patient=True) as (database, transport):
        await _require_schema(app)
        await run_services([app.daemons[name](database, transport) for name in names])


async def _require_schema(app: App) -> None:
    """Refuse to start where grns was never installed: that does not pass by itself."""
    from grns.store import migrate

    if await migrate.current(app.settings.require_database_url()) is None:
        raise Unavailable("the schema grns is missing in this database: run `grns db upgrade`")


def _command(name: str, service: tuple[str, ...], help_text: str) -> click.Command:
    @click.command(name, help=help_text)
    @click.option(
        "--metrics-port", type=click.IntRange(0, 65535), help="Serve Prometheus metrics on this port."
    )
    def command(metrics_port: int | None) -> None:
        _run(service, name, metrics_port)

    return command


server = _command(
    "server",
    _ALL,
    "Run relay, reaper, retry scheduler, counter, janitor and operation runner in one process.",
)
relay = _command("relay", ("relay",), "Publish the log to the broker. One leads, others stand by.")
reaper = _command("reaper", ("reaper",), "Take back tasks whose lease is over. Any number may run.")
retry_scheduler = _command("retry-scheduler", ("retry-scheduler",), "Queue what is due. Any number may run.")
counter = _command("counter", ("counter",), "Count what the log says. One leads, others stand by.")
janitor = _command("janitor", ("janitor",), "Keep partitions and retention. Any number may run.")
operation_runner = _command(
    "operation-runner", ("operation-runner",), "Redrive, discard and cancel in bulk. Any number may run."
)
