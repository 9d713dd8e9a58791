"""Bringing the schema up to date."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from uuid import uuid4

import asyncpg
import pytest

from grns.dev.servers import LocalPostgres
from grns.errors import UnusableError
from grns.postgres import migrate
from tests.support.harness import eventually


@pytest.fixture
async def fresh_urls(postgres: LocalPostgres) -> AsyncIterator[list[str]]:
    """Three databases with nothing in them."""
    names = [f"fresh_{uuid4().hex}" for _ in range(3)]
    connection = await asyncpg.connect(postgres.admin_url)
    try:
        for name in names:
            await connection.execute(f"create database {name}")
        yield [postgres.admin_url.rsplit("/", 1)[0] + "/" + name for name in names]
    finally:
        for name in names:
            await connection.execute(f"drop database if exists {name} with (force)")
        await connection.close()


async def test_one_process_upgrades_several_databases_at_once(fresh_urls: list[str]) -> None:
    await asyncio.gather(*(migrate.upgrade(url) for url in fresh_urls))
    assert [await migrate.current(url) for url in fresh_urls] == [migrate.newest()] * 3


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
async def test_two_processes_that_upgrade_a_fresh_database_at_once_both_succeed(
    fresh_urls: list[str], isolation: str
) -> None:
    """The second waits for the first, whatever the server's isolation, and finds nothing to do."""
    url = fresh_urls[0]
    first, watcher = await asyncpg.connect(url), await asyncpg.connect(url)
    try:
        await first.execute(
            f"alter database {url.rsplit('/', 1)[1]} set default_transaction_isolation = '{isolation}'"
        )
        # The first one, as it is about to commit.
        await first.execute("begin; select pg_advisory_xact_lock(hashtext('grns.schema_version'))")
        await first.execute(migrate.script().removeprefix("BEGIN;").rstrip().removesuffix("COMMIT;"))
        second = asyncio.create_task(migrate.upgrade(url))

        async def is_waiting() -> bool:
            return bool(
                await watcher.fetchval(
                    "select count(*) from pg_stat_activity where datname = current_database()"
                    " and wait_event_type = 'Lock'"
                )
            )

        await eventually(is_waiting)
        await first.execute("commit")
        await second
        assert await migrate.current(url) == migrate.newest()
    finally:
        await first.close()
        await watcher.close()


async def test_who_may_not_make_a_schema_is_told_so(fresh_urls: list[str]) -> None:
    url = fresh_urls[0]
    admin = await asyncpg.connect(url)
    try:
        await admin.execute("create role visitor login password 'hunter2'")
        with pytest.raises(UnusableError, match="permission denied for database"):
            await migrate.upgrade(re.sub("//[^@]*@", "//visitor:hunter2@", url))
    finally:
        await admin.execute("drop role visitor")
        await admin.close()
