"""The session of a command: settings, a client, the database, the broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import click

from grns.bootstrap import tools
from grns.bootstrap.app import App
from grns.cli import failure, option
from grns.cli.output import Column, Output, output_option
from grns.client.client import Client
from grns.dead_letters import listing
from grns.dead_letters.triage import Triage
from grns.model.actor import of_process
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.postgres.paging import Page
from grns.settings import Settings, load, misspelt

_NAME = "cli"
_CONNECTIONS = 2
_NUDGE_SECONDS = 1.0
# Services wait longer for a broker that is just starting; a person at a terminal wants to know.
_BROKER_SECONDS = 5.0

Access = Literal["none", "read", "broker", "write"]
Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass(frozen=True)
class CliSession:
    """An app with a client on its database."""

    app: App
    client: Client
    database: Database
    transport: JetStream
    actor: str

    @property
    def workspace(self) -> str:
        """The workspace that the settings name."""
        return self.app.settings.workspace

    @property
    def triage(self) -> Triage:
        """The triage of the workspace."""
        return tools.triage(self.app, self.database, self.transport)

    async def now(self) -> datetime:
        """Return the time of the database, whose clock dates everything."""
        return await listing.now(self.database)


def with_session(
    access: Access, *, missing: str | None = None, conflict: str | None = None
) -> Callable[[Callable[Concatenate[CliSession, Given], Awaitable[Result]]], Callable[Given, Result]]:
    """Run a coroutine function with an open session as its first argument.

    Args:
        access: connections to open: `read` to Postgres, `broker` to the broker, `write` to both, but to the
            broker only if it answers soon, because a nudge just makes things quicker.
        missing: command that helps after a `NotFoundError`.
        conflict: command that helps after a `ConflictError`. Both may name arguments of the command, such as
            `grns task show {task_id}`.
    """

    def decorate(
        function: Callable[Concatenate[CliSession, Given], Awaitable[Result]],
    ) -> Callable[Given, Result]:
        @wraps(function)
        def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            async def work() -> Result:
                async with _opened(access) as session:
                    return await function(session, *args, **kwargs)

            hints = {
                name: hint and hint.format(**kwargs)
                for name, hint in (("missing", missing), ("conflict", conflict))
            }
            try:
                with failure.hinting(**hints):
                    return asyncio.run(work())
            except asyncio.CancelledError as end:  # by SIGTERM, see `end_on_signals`
                raise click.exceptions.Exit(failure.TERMINATED) from end

        return call

    return decorate


def paged(
    columns: Sequence[Column],
    *,
    nothing: str,
    cursor: click.ParamType[Any] = option.CURSOR,
    missing: str | None = None,
) -> Callable[[Callable[..., Awaitable[Page[Any]]]], Callable[..., None]]:
    """Make a command that shows the page which a coroutine function returns, with its options."""

    def decorate(function: Callable[..., Awaitable[Page[Any]]]) -> Callable[..., None]:
        @wraps(function)
        async def show(session: CliSession, *, out: Output, **given: Any) -> None:
            out.page(await function(session, **given), columns, nothing=nothing, now=await session.now())

        return option.page_options(cursor)(output_option(with_session("read", missing=missing)(show)))

    return decorate


@asynccontextmanager
async def _opened(access: Access) -> AsyncIterator[CliSession]:
    if access == "write":
        app = App(_settings())
        async with app.connections(_NAME, size=_CONNECTIONS, is_patient=True) as (database, transport):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_NUDGE_SECONDS):
                    await transport.wait_connected()
            yield _session(app, database, transport)
        return
    app = App(impatient_settings())
    session = _session(app, app.database(_NAME, size=_CONNECTIONS), app.transport(_NAME))
    try:
        if access == "read":
            await session.database.connect()
        elif access == "broker":
            await session.transport.connect()
        yield session
    finally:
        await session.transport.close()
        await session.database.close()


def _session(app: App, database: Database, transport: JetStream) -> CliSession:
    actor = of_process("cli")
    # No command subscribes, so handlers' connections stay closed.
    client = tools.client(app, database, transport, app.handlers_database(), actor=actor)
    return CliSession(app, client, database, transport, actor)


def impatient_settings() -> Settings:
    """Return the settings, with less patience for a broker that is not there."""
    settings = _settings()
    seconds = min(settings.nats_startup_seconds, _BROKER_SECONDS)
    return settings.model_copy(update={"nats_startup_seconds": seconds})


def _settings() -> Settings:
    for sentence in misspelt():
        failure.note(sentence)
    return load()
