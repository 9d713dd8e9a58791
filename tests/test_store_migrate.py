"""Bringing the schema up to date."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import asyncpg

from grns.local import LocalPostgres
from grns.store import migrate


async def test_one_process_upgrades_several_databases_at_once(postgres: LocalPostgres) -> None:
    names = [f"fresh_{uuid4().hex}" for _ in range(3)]
    urls = [postgres.admin_url.rsplit("/", 1)[0] + "/" + name for name in names]
    connection = await asyncpg.connect(postgres.admin_url)
    try:
        for name in names:
            await connection.execute(f"create database {name}")
        await asyncio.gather(*(migrate.upgrade(url) for url in urls))
        assert [await migrate.current(url) for url in urls] == [migrate.newest()] * 3
    finally:
        for name in names:
            await connection.execute(f"drop database if exists {name} with (force)")
        await connection.close()
