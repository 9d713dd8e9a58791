"""A standby of an embedded Postgres: made from a base backup, fed by replication, promoted."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from grns.dev.servers import LocalPostgres
from tests.support.harness import eventually

# What belongs to the running server alone.
_NOT_COPIED = ("postmaster.pid", "postmaster.opts", "postgresql.auto.conf")


async def make_standby(
    primary: LocalPostgres, directory: Path, *, bin_directory: Path | None = None
) -> LocalPostgres:
    """Return a standby of a running server, started and fed by it."""
    cluster = directory / "cluster"
    connection = await asyncpg.connect(primary.admin_url)
    try:
        await connection.execute("select pg_backup_start('standby', fast => true)")
        await asyncio.to_thread(_copy, primary.data / "cluster", cluster)
        label = await connection.fetchval("select labelfile from pg_backup_stop()")
    finally:
        await connection.close()
    (cluster / "backup_label").write_text(label)
    (cluster / "standby.signal").touch()
    parts = urlsplit(primary.admin_url)
    # Where `alter system` can change it, which a setting on the command line would win over.
    (cluster / "postgresql.auto.conf").write_text(
        f"primary_conninfo = 'host=127.0.0.1 port={primary.port} user={parts.username}"
        f" password={parts.password}'\n"
    )
    standby = LocalPostgres(directory, bin_directory=bin_directory)
    await asyncio.to_thread(standby.start)
    return standby


def _copy(source: Path, target: Path) -> None:
    """Copy a data directory that is being written to: what goes meanwhile was not needed."""
    target.mkdir(parents=True, mode=0o700)
    for folder, _, names in os.walk(source):
        place = target / Path(folder).relative_to(source)
        place.mkdir(exist_ok=True, mode=0o700)
        for name in names:
            try:
                if name not in _NOT_COPIED:
                    shutil.copyfile(Path(folder) / name, place / name)
            except FileNotFoundError:
                continue


async def has_received_all(primary: LocalPostgres, standby: LocalPostgres) -> None:
    """Wait until the standby shows all that the primary had committed by now."""
    wanted = await _value(primary, "select pg_current_wal_lsn()::text")

    async def look() -> bool:
        return bool(await _value(standby, f"select pg_last_wal_replay_lsn() >= '{wanted}'"))

    await eventually(look)


async def receive_no_more(standby: LocalPostgres) -> None:
    """Cut the standby off its primary."""
    await _value(standby, "alter system set primary_conninfo = ''")
    await _value(standby, "select pg_reload_conf()")

    async def look() -> bool:
        return await _value(standby, "select count(*) from pg_stat_wal_receiver") == 0

    await eventually(look)


async def wait_for_standby(primary: LocalPostgres) -> None:
    """Let nothing be committed from now on that the standby has not received."""
    await _value(primary, "alter system set synchronous_standby_names = '*'")
    await _value(primary, "select pg_reload_conf()")

    async def look() -> bool:
        return await _value(primary, "select sync_state from pg_stat_replication") == "sync"

    await eventually(look)


async def promote(standby: LocalPostgres) -> None:
    """Make the standby the primary."""
    assert await _value(standby, "select pg_promote(wait => true)")


async def _value(server: LocalPostgres, sql: str) -> object:
    connection = await asyncpg.connect(server.admin_url)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()
