"""What one task does costs its neighbours on the same worker nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grns.app import App
from grns.daemon import Daemon
from grns.local import LocalNats
from grns.store.database import Database
from tests.harness import (
    Fleet,
    all_in,
    eventually,
    is_alive,
    keepers_of,
    lines_with,
    ready,
    rows_of,
    settings_for,
    submit_many,
)
from tests.pools import pool
from tests.test_store_kit import fetch, locked

pytestmark = pytest.mark.timeout(120)

LEASE = 6.0
HELD_SECONDS = 2.5


async def test_a_locked_row_is_asked_for_again_and_the_others_are_let_be(
    fleet: Fleet, database: Database, journal: Callable[[], list[str]], tmp_path: Path
) -> None:
    fleet.start("server")
    worker = fleet.start("worker", "tests.pools:pool", GRNS_LEASE_SECONDS=str(LEASE))
    await ready(database, worker)
    file = tmp_path / "file"
    ids = await submit_many(database, 5, task_type="until", payload={"file": str(file)})

    async def have_begun() -> bool:
        return len(journal()) == len(ids)

    await eventually(have_begun)
    renewals = set()
    async with locked(database, ids[0]):
        before = (await rows_of(database, ids[:1]))[ids[0]]["lease_until"]
        end = time.monotonic() + HELD_SECONDS
        while time.monotonic() < end:
            renewals.add((await rows_of(database, ids[1:2]))[ids[1]]["lease_until"])
            await asyncio.sleep(0.02)
    assert len(renewals) <= HELD_SECONDS / (LEASE / 3) + 2

    async def is_renewed() -> bool:
        return bool((await rows_of(database, ids[:1]))[ids[0]]["lease_until"] > before)

    await eventually(is_renewed, within_seconds=1.0)
    file.touch()
    rows = await all_in(database, ids, within_seconds=10)
    assert {row["attempt"] for row in rows.values()} == {1}


@pytest.mark.usefixtures("journal")
async def test_transactions_of_handlers_wait_for_their_turn_and_nobody_for_them(
    fleet: Fleet, database: Database
) -> None:
    """They take longer than any answer may, and there are more of them than connections."""
    await fetch(database, "create table payments (task_id text, attempt integer)")
    fleet.start("server")
    few = {"GRNS_LEASE_SECONDS": "3", "GRNS_DATABASE_POOL_SIZE": "4"}
    worker = fleet.start("worker", "tests.pools:pool", "--concurrency", "12", **few)
    await ready(database, worker)
    long = await submit_many(database, 8, task_type="pay", payload={"seconds": 3.0}, max_attempts=1)

    async def are_open() -> bool:
        rows = await fetch(
            database,
            "select count(*) as n from pg_stat_activity where application_name like 'grns handlers%'"
            " and state = 'idle in transaction'",
        )
        return bool(rows[0]["n"] == 4)

    await eventually(are_open)
    quick = await submit_many(database, 20, max_attempts=1)
    await all_in(database, quick, within_seconds=2.5)
    assert {row["status"] for row in (await rows_of(database, long)).values()} == {"running"}
    rows = await all_in(database, long, within_seconds=15)
    assert {(row["status"], row["attempt"]) for row in rows.values()} == {("succeeded", 1)}


async def test_a_worker_whose_loop_breaks_gives_back_what_it_has_and_ends(
    database: Database, broker: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would look alive, and not be."""
    app = App(settings_for(database.url, broker.url, shutdown_grace_seconds=1))

    async def broken() -> float:
        raise ZeroDivisionError("a bug")

    own = app.handlers_database()
    async with app.connections("worker", is_patient=True) as (connections, transport), own.opened():
        worker = app.worker(pool, connections, transport, own)
        monkeypatch.setattr(worker, "_floor_loop", Daemon("floor", broken, emit=app.telemetry.emit))
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await asyncio.wait_for(worker.run(), 30)
    rows = await fetch(database, "select stopped_at is not null as has_stopped from grns.agents")
    assert [row["has_stopped"] for row in rows] == [True]


async def test_a_forked_child_keeps_no_keeper_of_a_dead_worker(
    fleet: Fleet, database: Database, journal: Callable[[], list[str]]
) -> None:
    """It holds the pipe open by whose end a keeper is told that its worker has died."""
    worker = fleet.start("worker", "tests.pools:pool")
    await ready(database, worker)
    await submit_many(database, 1, task_type="fork")

    async def has_forked() -> list[str]:
        return lines_with(journal(), "child")

    (line,) = await eventually(has_forked)
    keepers = [pid for pid in keepers_of(worker.pid) if pid != int(line.split()[1])]
    assert keepers
    worker.kill()
    worker.wait()

    async def are_gone() -> bool:
        return not any(is_alive(pid) for pid in keepers)

    try:
        await eventually(are_gone, within_seconds=5.0)
    finally:
        os.kill(int(line.split()[1]), signal.SIGKILL)
