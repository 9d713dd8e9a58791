"""The Postgres server on which everything is measured, and the stages on it: each begins from nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path

import asyncpg

import grns
from grns.dev.servers import LocalNats, LocalPostgres
from grns.dev.servers.postgres import THROUGHPUT
from grns.postgres import migrate
from grns.postgres.database import Database
from tests.bench.stage import Stage
from tests.support.harness import Fleet

_TEMPLATE = "grns_template"
_ROOT = Path(__file__).parent.parent.parent


class Ground:
    """A server, and an administrator's connection to it. Made by `ground`."""

    def __init__(self, directory: Path, postgres: LocalPostgres, admin: asyncpg.Connection) -> None:
        self.directory = directory
        self.postgres = postgres
        self.admin = admin
        self._numbers = count(1)

    @asynccontextmanager
    async def stage(self) -> AsyncIterator[Stage]:
        """Open a stage: a new database and a new broker, and nothing that others have left to be written."""
        name = f"bench_{next(self._numbers)}"
        directory = self.directory / name
        directory.mkdir()
        await self.admin.execute(f"create database {name} template {_TEMPLATE}")
        await self.admin.execute("checkpoint")
        try:
            async with AsyncExitStack() as resources:
                yield await self._furnish(name, directory, resources)
        finally:
            await self.admin.execute(f"drop database {name} with (force)")

    async def _furnish(self, name: str, directory: Path, resources: AsyncExitStack) -> Stage:
        url = self.url_of(name)
        broker = LocalNats(directory / "nats")
        resources.push_async_callback(asyncio.to_thread, broker.stop)
        await asyncio.to_thread(broker.start)
        database = Database(url, name="bench", size=2)
        await resources.enter_async_context(database.opened())
        connection = await asyncpg.connect(url)
        resources.push_async_callback(connection.close)
        await connection.execute("create table bench_commits (at timestamptz not null default now())")
        client = await resources.enter_async_context(grns.connect(database_url=url, nats_url=broker.url))
        environment = {
            "GRNS_DATABASE_URL": url,
            "GRNS_NATS_URL": broker.url,
            "GRNS_LOG_LEVEL": "error",
            "PYTHONPATH": str(_ROOT),
        }
        fleet = Fleet(directory, environment)
        resources.push_async_callback(asyncio.to_thread, fleet.end)
        return Stage(
            name,
            postgres=self.postgres,
            broker=broker,
            database=database,
            connection=connection,
            client=client,
            fleet=fleet,
        )

    def url_of(self, name: str) -> str:
        """Return the URL of a database of this server."""
        return self.postgres.admin_url.rsplit("/", 1)[0] + "/" + name


@asynccontextmanager
async def ground(directory: Path, settings: Mapping[str, str] | None = None) -> AsyncIterator[Ground]:
    """Run a server under this directory, with a database of grns to be copied."""
    postgres = LocalPostgres(directory / "postgres", settings={**THROUGHPUT, **(settings or {})})
    await asyncio.to_thread(postgres.start)
    try:
        admin = await asyncpg.connect(postgres.admin_url)
        try:
            here = Ground(directory, postgres, admin)
            await admin.execute(f"create database {_TEMPLATE}")
            await migrate.upgrade(here.url_of(_TEMPLATE))
            yield here
        finally:
            await admin.close()
    finally:
        await asyncio.to_thread(postgres.stop)
