"""Tenants and connections: what a transaction becomes for a while, and what it leaves behind: nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from grns.access import isolation as access
from grns.access.isolation import as_tenant
from grns.errors import InvalidInputError, UnusableError
from grns.postgres.database import Connection, Database
from grns.tasks.follow_ups import FollowUps
from tests.access.test_isolation import OURS, THEIRS, ours, spread
from tests.support.harness import as_role, eventually, submit
from tests.support.store import claim, fetch, finish, log_of

BOTH = (OURS, THEIRS)
EXPLAIN, PLANNED = "explain select from grns.tasks where id = 'gr-1'", "current_setting"
SUBMIT = "select grns.submit_task('noop', idempotency_key => 'once', workspace => $1)"


# ---------------------------------------------------------------- functions


async def test_a_tenant_submits_into_its_own_workspace(database: Database) -> None:
    async with ours(database) as connection:
        task_id = await connection.fetchval(SUBMIT, OURS)
    told = [(row["kind"], row["workspace"]) for row in await log_of(database, task_id)]
    assert told == [("evt.task.queued", OURS), ("cmd.task.execute", OURS)]
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
        async with ours(database) as connection:
            await connection.execute(SUBMIT, THEIRS)
    assert await spread(database, "grns.tasks") == {OURS: 1}


async def test_an_idempotency_key_of_another_workspace_is_not_in_the_way(database: Database) -> None:
    theirs = await submit(database, workspace=THEIRS, idempotency_key="once")
    async with ours(database) as connection:
        task_id = await connection.fetchval(SUBMIT, OURS)
        assert await connection.fetchval(SUBMIT, OURS) == task_id
    assert task_id != theirs.id
    assert await spread(database, "grns.tasks") == {OURS: 1, THEIRS: 1}


async def test_a_tenant_declares_the_follow_ups_of_its_pools(database: Database) -> None:
    said = {"follows": "review", "outcome": "failure", "task_type": "tell", "agent_type": "desk"}
    for wanted in ([said], [said, said | {"follows": "write"}], []):
        async with as_tenant(database, OURS) as session:
            found = await FollowUps(session, OURS, "tests").put("coder", wanted)
        assert len(found) == len(wanted)
    with pytest.raises(UnusableError):
        async with as_tenant(database, OURS) as session:
            await FollowUps(session, THEIRS, "tests").put("coder", [said])
    assert await spread(database, "grns.task_types") == {OURS: 2}


@pytest.mark.parametrize(
    "sql",
    ["select grns.add_log_partition(1000)", "create table grns.mine (n integer)", "drop table grns.tasks"],
)
async def test_a_tenant_makes_and_drops_no_tables(database: Database, sql: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with ours(database) as connection:
            await connection.execute(sql)


async def test_a_name_that_is_no_workspaces_is_refused(database: Database) -> None:
    for workspace in ("", "a.b", "'; reset role; --", "x" * 65):
        with pytest.raises(InvalidInputError):
            await as_tenant(database, workspace).__aenter__()


# ---------------------------------------------------------------- connections

_MINE = """
    select current_user::text as who, session_user::text as me, pg_backend_pid() as pid,
        coalesce(current_setting('grns.workspace', true), '') as workspace
"""


@pytest.fixture
async def single(database_url: str) -> AsyncIterator[Database]:
    """A pool of one connection: who comes next gets the one that was a tenant's."""
    database = Database(database_url, name="single", size=1)
    async with database.opened():
        yield database


async def state_of(database: Database) -> dict[str, Any]:
    """Return whose the connection is, and for which workspace."""
    return dict((await fetch(database, _MINE))[0])


async def _go_well(connection: Connection) -> None:
    await connection.execute("select")


async def _raise(_connection: Connection) -> None:
    raise ZeroDivisionError


async def _fail(connection: Connection) -> None:
    await connection.execute("select 1 / 0")


async def _fail_and_go_on(connection: Connection) -> None:
    with pytest.raises(asyncpg.DivisionByZeroError):
        await _fail(connection)


async def _undo_a_part(connection: Connection) -> None:
    part = connection.transaction()
    await part.start()
    await connection.execute("set local grns.workspace = 'other'")
    await part.rollback()


async def _become_another(connection: Connection) -> None:
    await connection.execute("set local role none; set local grns.workspace = 'other'")


@pytest.mark.parametrize("act", [_go_well, _raise, _fail, _fail_and_go_on, _undo_a_part, _become_another])
async def test_a_connection_goes_back_as_it_came(
    single: Database, act: Callable[[Connection], Awaitable[None]]
) -> None:
    before = await state_of(single)
    assert (before["who"], before["workspace"]) == (before["me"], "")
    try:
        async with ours(single) as connection:
            within = dict((await connection.fetch(_MINE))[0])
            assert within == before | {"who": "grns_tenant", "workspace": OURS}
            await act(connection)
    except (ZeroDivisionError, asyncpg.DivisionByZeroError):
        assert act in (_raise, _fail)
    assert await state_of(single) == before


async def test_a_request_that_is_given_up_leaves_nothing_behind(single: Database, database: Database) -> None:
    before = await state_of(single)

    async def take_long() -> None:
        async with ours(single) as connection:
            await connection.execute("select pg_sleep(60)")

    async def is_taking_long() -> bool:
        asleep = "select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
        return bool(await fetch(database, asleep))

    request = asyncio.create_task(take_long())
    await eventually(is_taking_long)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    after = await state_of(single)
    assert after | {"pid": before["pid"]} == before, "whether it is that connection, or another one"


async def test_a_statement_that_was_prepared_serves_whoever_asks(single: Database) -> None:
    """The text is the same, and the connection: it is planned for the one, and for the other."""
    for workspace in BOTH:
        await submit(single, workspace=workspace)
    sql = "select workspace from grns.tasks order by workspace"
    for _ in range(3):
        assert [row["workspace"] for row in await fetch(single, sql)] == [*BOTH]
        for workspace in BOTH:
            async with ours(single, workspace) as connection:
                assert [row["workspace"] for row in await connection.fetch(sql)] == [workspace]


async def test_two_tenants_at_once_do_not_meet(database: Database) -> None:
    for workspace in BOTH:
        await submit(database, workspace=workspace)
    async with ours(database, OURS) as one, ours(database, THEIRS) as other:
        for connection, workspace in ((one, OURS), (other, THEIRS), (one, OURS)):
            rows = await connection.fetch("select workspace from grns.tasks")
            assert [row["workspace"] for row in rows] == [workspace]


async def _write_and_raise(database: Database) -> None:
    async with as_tenant(database, OURS) as session:
        async with session.transaction() as connection:
            await connection.fetch(SUBMIT, OURS)
        raise ZeroDivisionError


async def test_what_was_written_in_part_stands_and_falls_with_the_whole(database: Database) -> None:
    with pytest.raises(ZeroDivisionError):
        await _write_and_raise(database)
    assert await spread(database, "grns.tasks") == {}


# ---------------------------------------------------------------- everybody else


async def is_held_to_a_workspace(database: Database) -> bool:
    """Say whether what whoever connects asks is planned with what confines tenants."""
    return PLANNED in str(await fetch(database, EXPLAIN))


@pytest.fixture
async def app(database: Database) -> AsyncIterator[Database]:
    """Connections of a program's own role, which was granted what there is, and is no tenant."""
    role = f"app_{uuid4().hex}"
    await fetch(database, f"create role {role} login password 'app'")
    for what in (
        "usage on schema grns",
        "all on all tables in schema grns",
        "all on all sequences in schema grns",
    ):
        await fetch(database, f"grant {what} to {role}")
    theirs = Database(as_role(database.url, role, "app"), name="app")
    async with theirs.opened():
        yield theirs
    await fetch(database, f"drop owned by {role}")
    await fetch(database, f"drop role {role}")


async def test_nothing_is_taken_from_other_roles(app: Database, database: Database) -> None:
    for workspace in BOTH:
        await submit(app, workspace=workspace)
    held = await claim(app, (await submit(app)).id)
    assert (await finish(app, held)).status == "succeeded"
    assert await spread(app, "grns.tasks") == {OURS: 1, THEIRS: 1, "default": 1}
    assert await spread(app, "grns.events") == {OURS: 1, THEIRS: 1, "default": 3}
    assert not await is_held_to_a_workspace(app)
    async with ours(database) as connection:
        assert PLANNED in str(await connection.fetch(EXPLAIN))


async def test_who_may_not_become_a_tenant_is_told_so(app: Database) -> None:
    assert "may not act as the role grns_tenant" in str(await access.obstacle(app))
    with pytest.raises(UnusableError, match="grns_tenant"):
        await as_tenant(app, OURS).__aenter__()
    assert (await state_of(app))["who"].startswith("app_")
