"""Fixtures of pytest with real servers: `grns_stack`, `grns_client`, `grns_worker`.

pytest loads this module wherever grns is installed, so it imports the rest of grns in the fixtures.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import grns

try:
    from pytest_asyncio import fixture as async_fixture
except ModuleNotFoundError:  # pytest says then that it cannot run coroutine fixtures
    from pytest import fixture as async_fixture  # type: ignore[no-redef]  # noqa: PT013

_UPGRADE_SECONDS = 60.0
_STOP_SECONDS = 30.0
_DAEMONS = "relay,reaper,scheduler"
StartWorker = Callable[["grns.Pool"], Awaitable[None]]


@dataclass(frozen=True)
class ServerStack:
    """The servers of a test session, by the names of their settings."""

    database_url: str
    nats_url: str


@pytest.fixture(scope="session")
def grns_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerStack]:
    """Postgres, NATS and the daemons of grns on ports of their own, once per session."""
    from grns.dev.servers import LocalStack
    from grns.dev.servers.process import Process, ProcessGroup

    root = tmp_path_factory.mktemp("grns")
    with LocalStack(root / "servers") as stack:
        urls = ServerStack(stack.postgres.url, stack.nats.url)
        environment = {"GRNS_DATABASE_URL": urls.database_url, "GRNS_NATS_URL": urls.nats_url}
        upgrade = [sys.executable, "-m", "grns", "admin", "db", "upgrade"]
        Process(upgrade, log=root / "upgrade.log", environment=environment).complete(
            timeout_seconds=_UPGRADE_SECONDS
        )
        daemons = ProcessGroup(root)
        daemons.start("server", "server", "--only", _DAEMONS, environment=environment)
        try:
            yield urls
            daemons.check()
        finally:
            daemons.end()


@pytest.fixture
def grns_workspace() -> str:
    """A workspace of the test's own: it sees no tasks of other tests."""
    return f"test-{secrets.token_hex(6)}"


@async_fixture
async def grns_client(grns_stack: ServerStack, grns_workspace: str) -> AsyncIterator[grns.Client]:
    """A client of the servers, in the test's workspace."""
    import grns

    settings = {"database_url": grns_stack.database_url, "nats_url": grns_stack.nats_url}
    async with grns.connect(workspace=grns_workspace, **settings) as client:
        yield client


@async_fixture
async def grns_worker(grns_stack: ServerStack, grns_workspace: str) -> AsyncIterator[StartWorker]:
    """A function that starts a worker of a pool in this process: `await grns_worker(pool)`.

    It returns once the worker takes tasks, and raises what keeps it from starting.
    """
    from grns.bootstrap import workers
    from grns.bootstrap.app import App
    from grns.settings import load
    from grns.telemetry.log import LoggingListener

    settings = load(
        database_url=grns_stack.database_url,
        nats_url=grns_stack.nats_url,
        workspace=grns_workspace,
        shutdown_grace_seconds=1,
    )
    async with AsyncExitStack() as resources:

        async def start(pool: grns.Pool) -> None:
            app = App(settings, (LoggingListener(),))
            handlers_database = app.handlers_database()
            database, transport = await resources.enter_async_context(app.connections("worker"))
            await resources.enter_async_context(handlers_database.opened())
            worker = workers.worker(app, pool, database, transport, handlers_database)
            running = asyncio.create_task(worker.run())

            async def stop() -> None:
                worker.stop()
                await asyncio.wait_for(running, _STOP_SECONDS)

            ready = asyncio.create_task(worker.ready.wait())
            await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            if running.done():
                await running  # it could not start: raise why
            resources.push_async_callback(stop)

        yield start
