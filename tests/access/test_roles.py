"""Servers where not everybody may do everything: who migrates gets as far as they may, and is told the rest.

Roles are the whole server's: each test has one of its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from grns.access import isolation as access
from grns.access.isolation import as_tenant
from grns.dev.servers import LocalPostgres
from grns.errors import UnusableError
from grns.postgres import migrate
from grns.postgres.database import Database
from tests.access.test_isolation import OURS, THEIRS, ours, unconfined
from tests.access.test_sessions import is_held_to_a_workspace
from tests.support.harness import as_role, submit
from tests.support.store import claim, fetch, finish

PASSWORD = "everybodys"
GRANT = "create role grns_tenant; grant grns_tenant to owner"


@pytest.fixture
def server(directory: Path) -> Iterator[LocalPostgres]:
    """A server on which grns never was."""
    named = os.environ.get("GRNS_TEST_POSTGRES")
    data = directory / f"postgres-{uuid4().hex}"
    with LocalPostgres(data, bin_directory=Path(named) if named else None) as server:
        asyncio.run(as_admin(server, "drop role grns_tenant"))
        yield server


async def as_admin(server: LocalPostgres, *statements: str, database: str = "postgres") -> None:
    """Do what the server's administrator does."""
    connection = await asyncpg.connect(_url(server, "postgres", database))
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@asynccontextmanager
async def connected(server: LocalPostgres, role: str) -> AsyncIterator[Database]:
    """Connect to the program's database as some role."""
    database = Database(_url(server, role, "app"), name="test")
    async with database.opened():
        yield database


def _url(server: LocalPostgres, role: str, database: str) -> str:
    url = server.admin_url if role == "postgres" else as_role(server.admin_url, role, PASSWORD)
    return url.rpartition("/")[0] + f"/{database}"


async def prepare(server: LocalPostgres, rights: str) -> None:
    """Make a database of a role's own, and let that role migrate it."""
    await as_admin(
        server, f"create role owner login {rights} password '{PASSWORD}'", "create database app owner owner"
    )
    await migrate.upgrade(_url(server, "owner", "app"))


async def check_isolation(database: Database) -> None:
    """Check that tenants are confined, and whoever connects is not."""
    assert await access.obstacle(database) is None
    assert not await unconfined(database)
    assert not await is_held_to_a_workspace(database)
    for workspace in (OURS, THEIRS):
        await submit(database, workspace=workspace)
    async with ours(database) as connection:
        rows = await connection.fetch("select distinct workspace from grns.tasks")
    assert [row["workspace"] for row in rows] == [OURS]
    rows = await fetch(
        database, "select distinct workspace from grns.tasks where workspace = any($1)", [OURS, THEIRS]
    )
    assert len(rows) == 2


async def test_who_may_create_roles_needs_nobody(server: LocalPostgres) -> None:
    await prepare(server, "createrole")
    async with connected(server, "owner") as database:
        await check_isolation(database)


async def test_who_may_not_is_told_what_to_have_done_and_works_all_the_same(server: LocalPostgres) -> None:
    await prepare(server, "nocreaterole")
    async with connected(server, "owner") as database:
        assert f"have an administrator run `{GRANT}`" in str(await access.obstacle(database))
        assert await access.obstacle(database) is not None
        with pytest.raises(UnusableError, match="no role grns_tenant"):
            await as_tenant(database, OURS).__aenter__()
        assert (
            await finish(database, await claim(database, (await submit(database)).id))
        ).status == "succeeded"

        await as_admin(server, *GRANT.split("; "))
        assert "is not set up" in str(await access.obstacle(database))
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with ours(database) as connection:
                await connection.fetch("select from grns.tasks")
        await access.isolate(database)
        await access.isolate(database)
        await check_isolation(database)


async def test_a_role_that_another_database_has_made_is_used(server: LocalPostgres) -> None:
    await as_admin(server, "create role grns_tenant nologin")
    await prepare(server, "nocreaterole")
    async with connected(server, "owner") as database:
        assert "may not act as the role grns_tenant" in str(await access.obstacle(database))
        assert not await unconfined(database)
        await as_admin(server, "grant grns_tenant to owner")
        await check_isolation(database)


async def test_a_program_may_run_as_another_role_than_the_owner(server: LocalPostgres) -> None:
    await prepare(server, "createrole")
    await as_admin(server, f"create role app login password '{PASSWORD}'", "grant grns_tenant to app")
    for what in (
        "usage on schema grns",
        "all on all tables in schema grns",
        "all on all sequences in schema grns",
    ):
        await as_admin(server, f"grant {what} to app", database="app")
    async with connected(server, "app") as database:
        assert "app has the rights of grns_tenant all the time" in str(await access.obstacle(database))
        # What the role may inherit is settled when it is granted, from PostgreSQL 16 on.
        await as_admin(
            server, "alter role app noinherit", "revoke grns_tenant from app", "grant grns_tenant to app"
        )
        await check_isolation(database)


@pytest.mark.parametrize("excess", ["superuser", "bypassrls"])
async def test_a_role_above_all_policies_is_found(server: LocalPostgres, excess: str) -> None:
    await prepare(server, "createrole")
    await as_admin(server, f"alter role grns_tenant {excess}")
    async with connected(server, "owner") as database:
        assert "no policy confines it" in str(await access.obstacle(database))


async def test_a_role_with_the_owners_rights_is_found(server: LocalPostgres) -> None:
    await as_admin(server, "create role grns_tenant")
    await prepare(server, "nocreaterole")
    await as_admin(
        server, "create role bystander", "grant bystander to grns_tenant", "grant grns_tenant to owner"
    )
    async with connected(server, "owner") as database:
        assert await access.obstacle(database) is None, "another role's rights are no matter"
    async with connected(server, "postgres") as database:
        await fetch(database, "alter table grns.dead_letters owner to bystander")
        assert "no policy confines it" in str(await access.obstacle(database))
