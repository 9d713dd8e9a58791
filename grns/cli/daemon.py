"""`grns server`, and each daemon as a process of its own."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack
from typing import Any

import click

from grns.bootstrap import api as api_service
from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.cli.group import Command
from grns.cli.process import make_app, run, run_services
from grns.errors import UnusableError
from grns.settings import load

_API = "api"


class DaemonNames(click.ParamType[tuple[str, ...]]):
    """Names of daemons, separated by commas."""

    name = "names"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names, each once."""
        if isinstance(value, tuple):
            return value
        known = (*daemons.DAEMONS, _API)
        names = dict.fromkeys(name.strip() for name in value.split(","))
        for name in names:
            if name not in known:
                self.fail(f"{ascii(name)[:100]} is not a daemon: choose from {', '.join(known)}", param, ctx)
        return tuple(names)


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
        services = daemons.services_of(names, app, database, transport)
        if has_api:
            # Connections of its own: however much is asked of it, the daemons have theirs.
            of_api = app.database("api")
            await resources.enter_async_context(of_api.opened(app.wait_for_postgres))
            services.append(api_service.api(app, of_api, transport))
        await run_services(services)


async def _require_schema(app: App) -> None:
    """Refuse to start where grns was never installed: waiting does not help."""
    from grns.postgres import migrate

    url = app.settings.require_database_url()
    if await app.wait_for_postgres(lambda: migrate.current(url)) is None:
        raise UnusableError("the schema grns is missing in this database: run `grns admin db upgrade`")


_METRICS_PORT = click.option(
    "--metrics-port", type=click.IntRange(0, 65535), help="Port of Prometheus metrics."
)


@click.command(
    cls=Command,
    examples=["grns server --api", "grns server --only relay,reaper,scheduler --metrics-port 9464"],
)
@click.option(
    "--only",
    "names",
    metavar="NAME,...",
    type=DaemonNames(),
    help="Run only these daemons: relay, command-server, reaper, scheduler, stats, janitor, operations,"
    " webhooks, api.",
)
@click.option(
    "--api", "has_api", is_flag=True, help="Also serve the HTTP API (GRNS_API_HOST, GRNS_API_PORT)."
)
@_METRICS_PORT
def server(names: tuple[str, ...] | None, has_api: bool, metrics_port: int | None) -> None:
    """Run all daemons in one process. Without --api, the HTTP API is not among them."""
    chosen = tuple(daemons.DAEMONS) if names is None else names
    running = tuple(name for name in chosen if name != _API)
    _run(running, "server", has_api=has_api or _API in chosen, metrics_port=metrics_port)


@click.command(cls=Command, examples=["grns daemon api", "grns daemon api --host 0.0.0.0 --port 8080"])
@click.option("--host", "api_host", help="Address to serve on. Defaults to GRNS_API_HOST, else 127.0.0.1.")
@click.option(
    "--port", "api_port", type=click.IntRange(0, 65535), help="Port to serve on. 0 chooses a free one."
)
@_METRICS_PORT
def api(api_host: str | None, api_port: int | None, metrics_port: int | None) -> None:
    """Serve the HTTP API and the dashboard. Run any number."""
    _run((), _API, has_api=True, api_host=api_host, api_port=api_port, metrics_port=metrics_port)


def _daemon(name: str, help_text: str) -> click.Command:
    examples = [f"grns daemon {name}", f"grns daemon {name} --metrics-port 9464"]

    @click.command(name, cls=Command, help=help_text, examples=examples)
    @_METRICS_PORT
    def command(metrics_port: int | None) -> None:
        _run((name,), name, metrics_port=metrics_port)

    return command


relay = _daemon("relay", "Publish the event log to NATS. One is the leader, others are standby.")
command_server = _daemon("command-server", "Handle submit and cancel requests over NATS. Run any number.")
reaper = _daemon("reaper", "Queue tasks again whose lease expired. Run any number.")
scheduler = _daemon("scheduler", "Queue due tasks: retries and delayed tasks. Run any number.")
stats = _daemon("stats", "Count tasks and issues from the event log. One is the leader.")
janitor = _daemon("janitor", "Maintain partitions, retention, gauges and checks. Run any number.")
operations = _daemon("operations", "Run bulk operations: redrive, discard, cancel. Run any number.")
webhooks = _daemon("webhooks", "Send events to webhooks. Run any number.")
