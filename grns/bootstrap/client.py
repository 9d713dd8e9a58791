"""`grns.connect`: the client of applications."""

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
    """Open a client.

    Args:
        actor: who uses it, such as `billing`: at most 255 printable characters without a space. Events record
            it for tasks that are submitted, cancelled or redriven.
        settings: settings that override the environment, such as `database_url` and `nats_url`
            (`GRNS_DATABASE_URL`, `GRNS_NATS_URL`).

    Returns:
        A context manager with the `Client`. It needs Postgres, and connects to the broker in the background.
        The logger `grns` records problems of the broker and of event handlers.

    Raises:
        SettingsError: a setting is missing or invalid.
        UnavailableError: Postgres cannot be reached.

    Example:
        async with grns.connect() as client:
            await client.submit("fetch_page", {"url": "https://example.org"}, pool="shop")
    """
    if actor is not None:
        check_actor(actor)
    app = App(load(**settings), (LoggingListener(),))
    app.trace("client", is_embedded=True)
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
