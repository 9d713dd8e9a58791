"""`grns.connect`: a client in somebody else's program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from grns.bootstrap import tools
from grns.bootstrap.app import App
from grns.client.client import Client
from grns.model.actor import check as check_actor
from grns.settings import load
from grns.telemetry.log import LoggingListener


@asynccontextmanager
async def connect(*, actor: str | None = None, **settings: Any) -> AsyncIterator[Client]:
    """Open a client: `async with grns.connect() as client:`.

    Settings come from the environment (`GRNS_DATABASE_URL`, `GRNS_NATS_URL`, …) unless given
    here by name. Needs Postgres; the broker is connected to in the background. What goes wrong there, and
    in handlers of events, is told to the logger `grns`. `actor` (255 printable characters at most, no space)
    is who asks, as `billing`: the log has it with all that is submitted, cancelled and redriven here.
    """
    if actor is not None:
        check_actor(actor)
    app = App(load(**settings), (LoggingListener(),))
    app.trace("client", is_guest=True)
    handlers_database = app.handlers_database()
    try:
        async with (
            app.connections("client", is_patient=True) as (database, transport),
            handlers_database.opened(),
        ):
            made = tools.client(app, database, transport, handlers_database, actor=actor)
            try:
                yield made
            finally:
                await made.close()
    finally:
        if app.spans.is_on:
            await asyncio.to_thread(app.spans.close)
