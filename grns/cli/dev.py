"""`grns dev`: the servers, all daemons in one process, and a worker to try them with, for one directory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import SecretStr
from sqlalchemy import make_url

from grns.access.keys import authenticate, create_key
from grns.api.invitation import Invitation
from grns.bootstrap import api as api_service
from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.cli import failure
from grns.cli.group import Command
from grns.cli.process import make_app, run, run_services
from grns.dev.demo import run as demonstration
from grns.dev.servers import LocalNats, LocalPostgres, LocalStack
from grns.dev.servers.postgres import THROUGHPUT
from grns.dev.servers.process import Process
from grns.dev.servers.secret import kept_secret, write_private
from grns.errors import InUseError, SettingsError, UnauthenticatedError, UnavailableError
from grns.model.actor import of_process
from grns.model.server_url import place
from grns.nats import JetStream
from grns.postgres import migrate
from grns.postgres.database import Database
from grns.runtime.service import Service
from grns.settings import load

if TYPE_CHECKING:  # an extra installs what it needs
    from grns.api.server import ApiServer

ROOT = Path(".grns")
# Under the names that grns/settings reads.
_ANNOUNCED = ROOT / "dev.toml"
# The same for a shell in another directory.
_ENVIRONMENT = ROOT / "env"
_KEY = ROOT / "api_key"
_WEB_SECRET = ROOT / "session_secret"
_OVERRIDING = ("GRNS_DATABASE_URL", "GRNS_DATABASE_URL_FILE", "GRNS_NATS_URL", "GRNS_NATS_URL_FILE")

_POOL = "workers.digest:pool"
# The example digests a file that every machine has.
_TRY = '%s task submit digest_file --pool digest --payload \'{"path": "%s"}\' --wait'
_LOOK_SECONDS = 0.2
_END_SECONDS = 40.0  # more than a worker's grace


@click.command(cls=Command, examples=["grns dev", "grns dev --no-worker --port-api 9000"])
@click.option(
    "--port-postgres", type=click.IntRange(1, 65535), help="Port of PostgreSQL. Defaults to a free one."
)
@click.option("--port-nats", type=click.IntRange(1, 65535), help="Port of NATS. Defaults to a free one.")
@click.option(
    "--port-api", type=click.IntRange(1, 65535), help="Port of the HTTP API. Defaults to 8080, or a free one."
)
@click.option("--no-worker", "is_bare", is_flag=True, help=f"Without a worker of {_POOL}.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    envvar="GRNS_LOG_LEVEL",
    help="Lowest level of the daemons' log lines to show.",
)
def dev(
    port_postgres: int | None, port_nats: int | None, port_api: int | None, is_bare: bool, log_level: str
) -> None:
    """Run PostgreSQL, NATS, all daemons and a worker here until Ctrl-C. Data is in ./.grns.

    While it runs, every other command in this directory or below finds the servers automatically. Servers
    and API need passwords and a key, which are in ./.grns and readable only by you. The worker serves only
    the pool `digest`.
    """
    with _stack(port_postgres, port_nats) as stack, ExitStack() as resources:
        settings = load(database_url=stack.postgres.url, nats_url=stack.nats.url, log_level=log_level)
        if settings.session_secret is None:  # with one that is kept, a browser stays logged in over restarts
            settings = settings.model_copy(update={"session_secret": SecretStr(kept_secret(_WEB_SECRET))})
        app = make_app(settings, "dev", resources)
        run(settings, lambda: _serve(app, stack, port_api, is_bare=is_bare))


@contextmanager
def _stack(port_postgres: int | None, port_nats: int | None) -> Iterator[LocalStack]:
    """Run the servers. They block while they start and end, and hence live outside of the event loop."""
    stack = LocalStack(ROOT, settings=THROUGHPUT)
    if port_postgres is not None:
        stack.postgres = LocalPostgres(stack.root / "postgres", port=port_postgres, settings=THROUGHPUT)
    if port_nats is not None:
        stack.nats = LocalNats(stack.root / "nats", port=port_nats)
    try:
        stack.start()
    except InUseError as error:
        raise failure.hinted(error, "grns task list  (it finds the servers that run here)") from error
    (ROOT / ".gitignore").write_text("*\n")
    try:
        yield stack
    finally:
        # A second signal need not wait for the end of Postgres: the servers end with this process.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: os._exit(failure.INTERRUPTED))
        stack.stop()


async def _serve(app: App, stack: LocalStack, port_api: int | None, *, is_bare: bool) -> None:
    worker = None if is_bare else _Worker(stack)
    try:
        url = stack.postgres.url
        is_migrated = await migrate.current(url) == migrate.newest()
        if worker is not None and is_migrated:  # before all else: it takes a second to load
            worker.start()
        await migrate.upgrade(url, payload_bytes=app.settings.payload_max_bytes)
        if worker is not None and not is_migrated:  # it would not begin without a schema
            worker.start()
        async with app.connections("dev") as (database, transport):
            await transport.provision()
            running = daemons.services_of(daemons.DAEMONS, app, database, transport)
            invitation = await _invitation(database)
            api = _api(app, database, transport, port_api, invitation)
            # The API takes connections before they are invited.
            optional = [*running, api, _Announcement(stack, worker, api, invitation), worker]
            services: list[Service] = [service for service in optional if service is not None]
            await run_services(services)
    finally:
        if worker is not None:
            worker.end()


async def _invitation(database: Database) -> Invitation:
    """Return an invitation to the dashboard with the key in ./.grns; create the key if it is not valid."""
    try:
        text = _KEY.read_text(encoding="utf-8").strip()
        await authenticate(database, text)
    except (OSError, UnauthenticatedError):
        made, _ = await create_key(
            database, workspace=None, name="grns dev", scopes=["admin"], actor=of_process("cli")
        )
        text = made.reveal()
        write_private(_KEY, f"{text}\n")
    return Invitation(key=text)


def _api(
    app: App, database: Database, transport: JetStream, port: int | None, invitation: Invitation
) -> ApiServer | None:
    """Return the API's server, or None if its extra is not installed."""
    try:
        return api_service.api(app, database, transport, port=port, invitation=invitation)
    except UnavailableError:
        if port is not None:
            raise
        return api_service.api(app, database, transport, port=0, invitation=invitation)
    except SettingsError as error:
        hint = next(iter(getattr(error, "__notes__", ())), None)
        failure.print_error(f"without the HTTP API and the dashboard: {error}", hint)
        return None


class _Worker:
    """A worker process that ends with this process, however it ends."""

    def __init__(self, stack: LocalStack) -> None:
        self.log = stack.root / "worker.log"
        self._stopping = asyncio.Event()
        self._process = Process(
            [sys.executable, "-m", "grns", "worker", "start", _POOL],
            log=self.log,
            environment={
                "GRNS_DATABASE_URL": stack.postgres.url,
                "GRNS_NATS_URL": stack.nats.url,
                "GRNS_DIGEST_ROOT": os.environ.get("GRNS_DIGEST_ROOT") or _digest_roots(),
            },
            directory=Path.cwd(),
        )

    def start(self) -> None:
        """Start the process."""
        self._process.start()

    async def run(self) -> None:
        """Watch the process until stopped."""
        is_noted = False
        while not self._stopping.is_set():
            if not self._process.running and not is_noted:
                failure.note(f"the worker of {_POOL} has ended; its log is {self.log}")
                is_noted = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._stopping.wait()
        await asyncio.to_thread(self.end)

    def stop(self) -> None:
        """Stop watching, and end the process."""
        self._stopping.set()

    def end(self) -> None:
        """End the process after its running tasks."""
        if self._process.running:
            self._process.stop(signal.SIGTERM, timeout_seconds=_END_SECONDS)


def _digest_roots() -> str:
    """Return the directories that the worker may read: this one, and Python's library for the example."""
    return os.pathsep.join((str(Path.cwd()), sysconfig.get_path("stdlib")))


class _Announcement:
    """A service that announces the servers for as long as the daemons run.

    It is stopped together with the daemons: even a second Ctrl-C leaves no announcement.
    """

    def __init__(
        self,
        stack: LocalStack,
        worker: _Worker | None,
        api: ApiServer | None,
        invitation: Invitation,
    ) -> None:
        self._stack = stack
        self._worker = worker
        self._api = api
        self._invitation = invitation
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Announce the servers until stopped."""
        origin = "# Written by `grns dev` while it runs.\n"
        urls = {"database_url": self._stack.postgres.url, "nats_url": self._stack.nats.url}
        variables = {f"GRNS_{name.upper()}": url for name, url in urls.items()} | _libpq(urls["database_url"])
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
        write_private(_ENVIRONMENT, origin + exports)
        write_private(_ANNOUNCED, origin + "".join(f'{name} = "{url}"\n' for name, url in urls.items()))
        self._greet()
        await self._stopping.wait()

    def stop(self) -> None:
        """Withdraw the announcement."""
        for path in (_ANNOUNCED, _ENVIRONMENT):
            path.unlink(missing_ok=True)
        self._stopping.set()

    def _greet(self) -> None:
        # URLs without passwords: others may read the screen, and terminals keep it.
        click.echo(f"Postgres  {place(self._stack.postgres.url)}")
        click.echo(f"NATS      {place(self._stack.nats.url)}")
        if self._api is not None:
            # Its token opens the dashboard, and is valid until this process ends.
            click.echo(f"dashboard {self._api.url}{self._invitation.path()}")
            click.echo(f"API       {self._api.url}/api/v1/  (key in {_KEY.absolute()})")
        click.echo(f"data      {self._stack.root}")
        if self._worker is not None:
            click.echo(f"worker    {_POOL}, log in {self._worker.log}")
        click.echo("\nReady. Try, in another terminal, in this directory or below:\n")
        grns = _program()
        if self._worker is None:
            click.echo(f"  {grns} worker start {_POOL}")
        click.echo(f"  {_TRY % (grns, json.__file__)}")
        click.echo(f"  {grns} task list")
        click.echo(f"  {grns} events tail")
        if self._api is not None:
            click.echo(f'  curl -s -H "Authorization: Bearer $(cat {_KEY})" {self._api.url}/api/v1/tasks')
        click.echo("")
        click.echo("In any other directory, first:\n")
        click.echo(f"  . {shlex.quote(str(_ENVIRONMENT.absolute()))}\n")
        for name in _OVERRIDING:
            if os.environ.get(name):
                failure.note(f"{name} is set, and wins over what is announced here")
        failure.note("Ctrl-C ends it")


def _libpq(url: str) -> dict[str, str]:
    """Return a database's place in the variables that psql and the settings of many frameworks read."""
    place = make_url(url)
    values = {
        "HOST": place.host, "PORT": place.port, "DATABASE": place.database,
        "USER": place.username, "PASSWORD": place.password,
    }  # fmt: skip
    return {f"PG{name}": str(value) for name, value in values.items() if value is not None}


def _program() -> str:
    """Return the command that starts grns in another terminal, in which no venv is active."""
    ours, on_path = Path(sys.executable).with_name("grns"), shutil.which("grns")
    if not ours.exists():
        return f"{shlex.quote(sys.executable)} -m grns"
    if on_path is not None and not os.environ.get("VIRTUAL_ENV") and ours.samefile(on_path):
        return "grns"
    here = Path.cwd()
    return shlex.quote(str(ours.relative_to(here) if ours.is_relative_to(here) else ours))


@click.command(cls=Command, examples=["grns demo", "grns demo --files 300"])
@click.option(
    "--files", type=click.IntRange(min=100), default=1200, show_default=True, help="Python files to digest."
)
def demo(files: int) -> None:
    """Run a thousand tasks on temporary servers, kill a worker, and check every result."""
    sys.exit(demonstration.run(files))
