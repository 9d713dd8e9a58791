"""Tenants and tables: whatever is asked in such a transaction, it reaches no row of another workspace.

The tables are those that the catalogue knows, so that none is forgotten that comes later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from grns.access import isolation as access
from grns.access.isolation import as_tenant
from grns.postgres.database import Connection, Database
from tests.support.store import fetch

OURS, THEIRS = "acme", "rival"

# Partitions are reached through the log alone: on them, tenants have no rights at all.
_WITH_WORKSPACE = """
    select 'grns.' || quote_ident(c.relname) as name from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attname = 'workspace' and not a.attisdropped
    where c.relnamespace = 'grns'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
    order by c.oid
"""
_USABLE = """
    select 'grns.' || quote_ident(c.relname) as name from pg_class c
    where c.relnamespace = 'grns'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
        and (has_any_column_privilege('grns_tenant', c.oid, 'select, insert, update, references')
            or has_table_privilege('grns_tenant', c.oid, 'delete, truncate, trigger'))
"""
# All but the owner are held to: one policy for everybody, and one more for tenants.
_POLICIES = """
    select c.relrowsecurity and not c.relforcerowsecurity, p.polname, p.polpermissive, p.polcmd::text,
        array(select case r.oid when 0 then 'public' else r.oid::regrole::text end
            from unnest(p.polroles) as r (oid)),
        pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)
    from pg_class c
    join pg_policy p on p.polrelid = c.oid
    where c.oid = $1::text::regclass
    order by p.polname
"""
_ITS_OWN = "(workspace = current_setting('grns.workspace'::text, true))"
_CONFINED = [
    (True, "everybody", True, "*", ["public"], "true", None),
    (True, "tenant", False, "*", ["grns_tenant"], _ITS_OWN, None),
]

# The columns that have to be filled, and what with: it differs from one workspace to the next.
_COLUMNS = """
    select quote_ident(a.attname) as name, format_type(a.atttypid, null) as type
    from pg_attribute a
    where a.attrelid = $1::text::regclass and a.attnum > 0 and not a.attisdropped and a.attidentity = ''
        and a.attgenerated = '' and (a.attname = 'workspace' or (a.attnotnull and not a.atthasdef))
    order by a.attnum
"""
_TEXT, _NUMBER, _DOCUMENT = "'{workspace}'", "{number}", "'{{}}'"
_FILLING = {
    "text": _TEXT, "bytea": _TEXT, "text[]": _DOCUMENT, '"char"': "'q'", "boolean": "true",
    "smallint": _NUMBER, "integer": _NUMBER, "bigint": _NUMBER, "double precision": _NUMBER,
    "timestamp with time zone": "now()", "uuid": "gen_random_uuid()", "json": _DOCUMENT, "jsonb": _DOCUMENT,
    "date": "now()", "numeric": _NUMBER,
}  # fmt: skip
# What a column may hold, and what it refers to, is no matter here.
_RULES = """
    select format('alter table %s drop constraint %I', c.conrelid::regclass, c.conname) as statement
    from pg_constraint c
    where c.connamespace = 'grns'::regnamespace and c.contype in ('c', 'f') and c.conrelid <> 0
        and c.conparentid = 0
"""


async def tables(database: Database) -> list[str]:
    """Return the tables whose rows bear a workspace."""
    return [row["name"] for row in await fetch(database, _WITH_WORKSPACE)]


async def unconfined(database: Database) -> list[str]:
    """Return those of them that do not confine tenants."""
    return [
        table
        for table in await tables(database)
        if [tuple(row) for row in await fetch(database, _POLICIES, table)] != _CONFINED
    ]


async def insertion(database: Database, table: str, workspace: str) -> str:
    """Return the statement that makes a row of a workspace, whatever the table."""
    columns = await fetch(database, _COLUMNS, table)
    names = ", ".join(column["name"] for column in columns)
    values = ", ".join(
        _FILLING[column["type"]].format(workspace=workspace, number=len(workspace)) for column in columns
    )
    return f"insert into {table} ({names}) values ({values})"


async def spread(database: Database, table: str) -> dict[str | None, int]:
    """Return how many rows of each workspace there are."""
    rows = await fetch(database, f"select workspace, count(*) as count from {table} group by workspace")
    return {row["workspace"]: row["count"] for row in rows}


@pytest.fixture
async def crowded(database: Database) -> Database:
    """A database in which every table has a row of ours and one of theirs."""
    for rule in await fetch(database, _RULES):
        await fetch(database, rule["statement"])
    for table in await tables(database):
        for workspace in (OURS, THEIRS):
            await fetch(database, await insertion(database, table, workspace))
    return database


@asynccontextmanager
async def ours(database: Database, workspace: str = OURS) -> AsyncIterator[Connection]:
    """Lend a connection to a tenant."""
    async with as_tenant(database, workspace) as session, session.connection() as connection:
        yield connection


async def touched(database: Database, sql: str) -> int:
    """Run SQL as ours, and return how many rows it has touched: none, where it is refused."""
    async with ours(database) as connection:
        try:
            answer = await connection.execute(sql)
        except asyncpg.InsufficientPrivilegeError:
            return 0
    return int(answer.rpartition(" ")[2])


async def test_every_table_with_a_workspace_confines_tenants(database: Database) -> None:
    found = await tables(database)
    assert {"grns.tasks", "grns.events", "grns.dead_letters", "grns.api_keys"} <= set(found)
    assert not await unconfined(database)
    told = await fetch(database, "select 'grns.' || relation as name from grns.tenant_rights")
    assert sorted(row["name"] for row in told) == sorted(found)


async def test_a_table_that_was_forgotten_is_found(database: Database) -> None:
    await fetch(database, "create table grns.novelties (workspace text not null)")
    assert await unconfined(database) == ["grns.novelties"]
    assert await access.obstacle(database) is None, "tenants have no right to it"
    await fetch(database, "grant select on grns.novelties to grns_tenant")
    assert "novelties" in str(await access.obstacle(database))
    await fetch(database, "insert into grns.tenant_rights values ('novelties', 'select, delete')")
    assert "is not set up" in str(await access.obstacle(database))
    await access.isolate(database)
    assert not await unconfined(database)
    assert await access.obstacle(database) is None


async def test_a_tenant_may_use_nothing_that_does_not_confine_it(database: Database) -> None:
    usable = {row["name"] for row in await fetch(database, _USABLE)}
    assert usable
    assert usable <= set(await tables(database))
    partitions = await fetch(database, "select 'grns.' || name as name from grns.log_partitions")
    for name in ("grns.relay_cursor", "grns.log_partitions", "grns.tenant_rights", partitions[0]["name"]):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with ours(database) as connection:
                await connection.fetch(f"select from {name}")


async def test_a_tenant_sees_nothing_of_another_workspace(crowded: Database) -> None:
    seen: dict[str, set[str | None]] = {}
    for table in await tables(crowded):
        assert {OURS, THEIRS} <= (await spread(crowded, table)).keys()
        async with ours(crowded) as connection:
            if await connection.fetchval("select has_any_column_privilege($1::text, 'select')", table):
                rows = await connection.fetch(f"select workspace from {table}")
                seen[table] = {row["workspace"] for row in rows}
    assert {"grns.tasks", "grns.events", "grns.dead_letters", "grns.api_keys"} <= seen.keys()
    assert {table: workspaces for table, workspaces in seen.items() if workspaces != {OURS}} == {}


async def test_a_tenant_changes_nothing_of_another_workspace(crowded: Database) -> None:
    for table in await tables(crowded):
        before = await spread(crowded, table)
        for sql in (
            f"update {table} set workspace = workspace where workspace is distinct from '{OURS}'",
            f"update {table} set workspace = '{OURS}' where workspace = '{THEIRS}'",
            f"update {table} set workspace = '{THEIRS}'",
            f"update {table} set workspace = null",
            f"delete from {table} where workspace is distinct from '{OURS}'",
            f"truncate {table}",
            await insertion(crowded, table, THEIRS),
        ):
            assert await touched(crowded, sql) == 0, sql
        assert await spread(crowded, table) == before


async def test_a_tenant_changes_its_own_as_far_as_it_has_the_right(crowded: Database) -> None:
    for table in ("tasks", "dead_letters"):
        assert await touched(crowded, f"update grns.{table} set workspace = workspace") == 1
    for table in ("tasks", "events", "dead_letters", "workspaces", "api_keys"):
        assert await touched(crowded, f"delete from grns.{table}") == 0
    assert await touched(crowded, await insertion(crowded, "grns.events", OURS)) == 1
    assert await touched(crowded, "update grns.events set kind = 'evt.task.completed'") == 0
    assert await touched(crowded, "update grns.api_keys set revoked_at = now()") == 1
    assert await touched(crowded, "update grns.api_keys set scopes = '{admin}'") == 0
    assert await touched(crowded, "select secret_sha256 from grns.api_keys") == 0


async def test_what_bears_no_workspace_is_no_tenants(crowded: Database) -> None:
    """A key or a replay of all workspaces belongs to none of them."""
    for table in ("grns.api_keys", "grns.replays"):
        await fetch(crowded, f"update {table} set workspace = null where workspace = '{THEIRS}'")
        async with ours(crowded) as connection:
            rows = await connection.fetch(f"select workspace from {table}")
        assert [row["workspace"] for row in rows] == [OURS]


@pytest.mark.parametrize("setting", [None, "", "default"])
async def test_a_role_that_does_not_say_whose_it_is_sees_nothing(
    crowded: Database, setting: str | None
) -> None:
    async with crowded.transaction() as connection:
        await connection.execute("set local role grns_tenant")
        if setting is not None:
            await connection.execute(f"set local grns.workspace = '{setting}'")
        for table in ("tasks", "events", "dead_letters", "api_keys"):
            assert not await connection.fetch(f"select workspace from grns.{table}")
