"""`grns server`, and each daemon as a process of its own."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack
from typing import Any

import click

from grns.bootstrap import api as doors
from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.cli.process import make_app, run, run_services
from grns.errors import UnusableError
from grns.runtime.service import Service
from grns.settings import load

_ALL = (
    "relay", "request-desk", "reaper", "retry-scheduler", "counter", "janitor", "operation-runner",
    "webhook-sender",
)  # fmt: skip


def _run(names: tuple[str, ...], service: str, *, has_api: bool = False, **flags: Any) -> None:
    settings = load(**flags)
    with ExitStack() as resources:
        app = make_app(settings, service, resources)
        run(settings, lambda: _serve(app, names, service, has_api=has_api))


async def _serve(app: App, names: tuple[str, ...], service: str, *, has_api: bool) -> None:
    async with (
        app.connections(service, is_service=True) as (database, transport),
        AsyncExitStack() as resources,
    ):
        await _require_schema(app)
        services: list[Service] = [daemons.DAEMONS[name](app, database, transport) for name in names]
        if has_api:
            # Connections of its own: however much is asked of it, the daemons have theirs.
            of_api = app.database("api")
            await resources.enter_async_context(of_api.opened(app.wait_for_postgres))
            services.append(doors.api(app, of_api, transport))
        await run_services(services)


async def _require_schema(app: App) -> None:
    """Refuse to start where grns was never installed: that does not pass by itself."""
    from grns.postgres import migrate

    url = app.settings.require_database_url()
    if await app.wait_for_postgres(lambda: migrate.current(url)) is None:
        raise UnusableError("the schema grns is missing in this database: run `grns db upgrade`")


_METRICS_PORT = click.option(
    "--metrics-port", type=click.IntRange(0, 65535), help="Port of Prometheus metrics."
)


def _command(name: str, service: tuple[str, ...], help_text: str) -> click.Command:
    @click.command(name, help=help_text)
    @_METRICS_PORT
    def command(metrics_port: int | None) -> None:
        _run(service, name, metrics_port=metrics_port)

    return command


@click.command()
@click.option(
    "--api", "has_api", is_flag=True, help="Also serve the HTTP API (GRNS_API_HOST, GRNS_API_PORT)."
)
@_METRICS_PORT
def server(has_api: bool, metrics_port: int | None) -> None:
    """Run all daemons in one process."""
    _run(_ALL, "server", has_api=has_api, metrics_port=metrics_port)


@click.command()
@click.option("--host", "api_host", help="Address to serve on. Defaults to GRNS_API_HOST, else 127.0.0.1.")
@click.option(
    "--port", "api_port", type=click.IntRange(0, 65535), help="Port to serve on. 0 chooses a free one."
)
@_METRICS_PORT
def api(api_host: str | None, api_port: int | None, metrics_port: int | None) -> None:
    """Serve the HTTP API and the dashboard. Run any number."""
    _run((), "api", has_api=True, api_host=api_host, api_port=api_port, metrics_port=metrics_port)


relay = _command("relay", ("relay",), "Publish the event log to NATS. One is the leader, others are standby.")
request_desk = _command(
    "request-desk", ("request-desk",), "Handle submit and cancel requests over NATS. Run any number."
)
reaper = _command("reaper", ("reaper",), "Queue tasks again whose lease expired. Run any number.")
retry_scheduler = _command(
    "retry-scheduler", ("retry-scheduler",), "Queue due tasks: retries and delayed tasks. Run any number."
)
counter = _command("counter", ("counter",), "Count tasks and issues from the event log. One is the leader.")
janitor = _command(
    "janitor", ("janitor",), "Maintain partitions, retention, gauges and checks. Run any number."
)
operation_runner = _command(
    "operation-runner",
    ("operation-runner",),
    "Run bulk operations: redrive, discard, cancel. Run any number.",
)
webhook_sender = _command("webhook-sender", ("webhook-sender",), "Send events to webhooks. Run any number.")
