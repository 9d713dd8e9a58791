"""Databases for a while: whose maker lives is nobody else's to drop, and no other one ever is."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from grns.dev.servers import LocalPostgres
from grns.errors import UnavailableError
from grns.model import server_url
from grns.postgres import scratch
from grns.postgres.database import Database
from tests.support.harness import as_role, eventually


@pytest.fixture
async def admin(postgres: LocalPostgres) -> AsyncIterator[asyncpg.Connection]:
    """The server's superuser; what a test has left goes with it."""
    connection = await asyncpg.connect(postgres.admin_url)
    yield connection
    for name in await ours(connection):
        await connection.execute(f'drop database "{name}" with (force)')
    await connection.close()


async def ours(connection: asyncpg.Connection) -> list[str]:
    """Return the names of all scratch databases."""
    rows = await connection.fetch("select datname from pg_database where datname like 'grns\\_bench\\_%'")
    return [row["datname"] for row in rows]


async def test_one_is_left_over_once_nobody_has_a_session_for_it(
    database_url: str, database: Database, admin: asyncpg.Connection
) -> None:
    name = scratch.new_name()
    async with scratch.announced(database_url, name) as server:
        assert await scratch.left_over(server) == []
        await scratch.make(server, name)
        assert name in await ours(admin)
        assert await scratch.left_over(database) == [], "its maker lives"
        inside = await asyncpg.connect(server_url.with_database(database_url, name))
    assert await scratch.left_over(database) == [], "somebody works in it"
    await inside.close()

    async def look() -> list[str]:
        return await scratch.left_over(database)

    assert await eventually(look) == [name]
    await scratch.drop(database, name)
    await scratch.drop(database, name)
    assert await ours(admin) == []


async def test_it_is_dropped_whoever_is_in_it(database_url: str, admin: asyncpg.Connection) -> None:
    name = scratch.new_name()
    async with scratch.announced(database_url, name) as server:
        await scratch.make(server, name)
        inside = await asyncpg.connect(server_url.with_database(database_url, name))
        await scratch.drop(server, name)
        assert await ours(admin) == []
        inside.terminate()


async def test_what_only_looks_alike_is_left_alone(
    postgres: LocalPostgres, database: Database, admin: asyncpg.Connection
) -> None:
    for name in ("grns_bench_results", "grns_bench_0123456789abcd", "my_grns_bench_0123456789ab"):
        await admin.execute(f"create database {name} template template0")
    try:
        assert await scratch.left_over(database) == []
    finally:
        await admin.execute("drop database my_grns_bench_0123456789ab")


async def test_other_peoples_are_left_alone(
    database_url: str, database: Database, admin: asyncpg.Connection
) -> None:
    await admin.execute("create role scratch_stranger login createdb password 'strange'")
    name = scratch.new_name()
    try:
        await admin.execute(f"create database {name} template template0")
        stranger = Database(as_role(database_url, "scratch_stranger", "strange"), name="stranger")
        async with stranger.opened():
            assert await scratch.left_over(stranger) == []
        assert await scratch.left_over(database) == [name]
    finally:
        await admin.execute("drop role scratch_stranger")


async def test_a_role_that_may_make_none_is_told_what_to_do(
    database_url: str, admin: asyncpg.Connection
) -> None:
    await admin.execute("create role \"the Poor\" login password 'poor'")
    name = scratch.new_name()
    try:
        url = as_role(database_url, "the%20Poor", "poor")
        async with scratch.announced(url, name) as server:
            with pytest.raises(UnavailableError, match='`alter role "the Poor" createdb`') as caught:
                await scratch.make(server, name)
        assert caught.value.__notes__ == ["psql -c 'alter role \"the Poor\" createdb'  (as a superuser)"]
    finally:
        await admin.execute('drop role "the Poor"')
    assert await ours(admin) == []
