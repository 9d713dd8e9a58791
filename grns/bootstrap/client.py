"""`grns.connect`: a client in a program of the user."""

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

    Needs Postgres; connects to the broker in the background and logs its errors, and those of handlers of
    events, to the logger `grns`.

    Args:
        actor: Name of the program, such as `billing`: 1 to 255 printable characters without spaces. The event
            log stores it with each task that this client submits, cancels or redrives.
        **settings: Settings by name. Defaults to the environment (`GRNS_DATABASE_URL`, `GRNS_NATS_URL`, …).
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
            client = tools.client(app, database, transport, handlers_database, actor=actor)
            try:
                yield client
            finally:
                await client.close()
    finally:
        if app.spans.is_on:
            await asyncio.to_thread(app.spans.close)
