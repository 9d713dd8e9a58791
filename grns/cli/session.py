"""What commands work with: settings, a client, the database alone, the broker alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from grns.bootstrap import tools
from grns.bootstrap.app import App
from grns.cli import failure
from grns.client.client import Client
from grns.model.actor import of_process
from grns.nats.interface import Transport
from grns.postgres.database import Database
from grns.settings import Settings, load, misspelt

_NAME = "cli"
_CONNECTIONS = 2
_NUDGE_SECONDS = 1.0
# Services wait longer for a broker that is just starting; somebody at a terminal wants to know.
_BROKER_SECONDS = 5.0


@dataclass(frozen=True)
class CliSession:
    """An app with a client on its database."""

    app: App
    client: Client
    database: Database
    transport: Transport

    @property
    def workspace(self) -> str:
        """The workspace that the settings name."""
        return self.app.settings.workspace


@asynccontextmanager
async def reading() -> AsyncIterator[CliSession]:
    """Connect to Postgres alone: for looking, the broker is seldom needed, and connected to then."""
    app = _impatient()
    database, transport = app.database(_NAME, size=_CONNECTIONS), app.transport(_NAME)
    await database.connect()
    try:
        yield CliSession(app, _client(app, database, transport), database, transport)
    finally:
        await database.close()


@asynccontextmanager
async def writing() -> AsyncIterator[CliSession]:
    """Connect to Postgres and, where it answers soon, to the broker: a nudge makes things quicker."""
    app = App(_settings())
    async with app.connections(_NAME, size=_CONNECTIONS, is_patient=True) as (database, transport):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NUDGE_SECONDS):
                await transport.wait_connected()
        yield CliSession(app, _client(app, database, transport), database, transport)


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[App, Transport]]:
    """Connect to the broker alone."""
    app = _impatient()
    transport = app.transport(_NAME)
    await transport.connect()
    try:
        yield app, transport
    finally:
        await transport.close()


def _client(app: App, database: Database, transport: Transport) -> Client:
    """Return a client; no command subscribes, so handlers' connections stay closed."""
    return tools.client(app, database, transport, app.handlers_database(), actor=of_process("cli"))


def impatient_settings() -> Settings:
    """Return the settings, with less patience for a broker that is not there."""
    settings = _settings()
    seconds = min(settings.nats_startup_seconds, _BROKER_SECONDS)
    return settings.model_copy(update={"nats_startup_seconds": seconds})


def _settings() -> Settings:
    for sentence in misspelt():
        failure.note(sentence)
    return load()


def _impatient() -> App:
    return App(impatient_settings())
