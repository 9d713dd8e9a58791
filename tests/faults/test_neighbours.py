"""What one task does costs its neighbours on the same worker nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from grns.bootstrap import workers
from grns.bootstrap.app import App
from grns.dev.servers import LocalNats
from grns.errors import UnavailableError
from grns.postgres.database import Database
from grns.runtime.service import PeriodicLoop
from grns.worker import heartbeat_process as heartbeat_process
from grns.worker.worker import Worker
from tests.support.harness import (
    Fleet,
    all_in,
    children_of,
    eventually,
    is_alive,
    lines_with,
    ready,
    rows_of,
    settings_for,
    submit_many,
)
from tests.support.pools import pool
from tests.support.store import fetch, locked

pytestmark = pytest.mark.timeout(120)

LEASE = 6.0
HELD_SECONDS = 2.5


async def test_a_locked_row_is_asked_for_again_and_the_others_are_let_be(
    fleet: Fleet, database: Database, journal: Callable[[], list[str]], tmp_path: Path
) -> None:
    fleet.start("server")
    worker = fleet.start("worker", "start", "tests.support.pools:pool", GRNS_LEASE_SECONDS=str(LEASE))
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
async def test_what_is_claimed_together_is_kept_before_it_begins(fleet: Fleet, database: Database) -> None:
    """Of one batch the first blocks the loop, so that nothing else of it begins for two leases."""
    lease = 3.0
    fleet.start("daemon", "reaper")
    blocking = {"how": "sleep_on", "seconds": 2.2 * lease}
    ids = await submit_many(database, 1, task_type="block_loop", payload=blocking)
    ids += await submit_many(database, 9, task_type="effect")
    fleet.start("worker", "start", "tests.support.pools:pool", GRNS_LEASE_SECONDS=str(lease))
    rows = await all_in(database, ids, within_seconds=40)
    assert {(row["status"], row["attempt"]) for row in rows.values()} == {("succeeded", 1)}
    claims = await fetch(
        database,
        "select distinct payload ->> 'lease_until' from grns.events where kind = 'evt.task.claimed'",
    )
    assert len(claims) == 1, "by one statement"


@pytest.mark.usefixtures("journal")
async def test_transactions_of_handlers_wait_for_their_turn_and_nobody_for_them(
    fleet: Fleet, database: Database
) -> None:
    """They take longer than any answer may, and there are more of them than connections."""
    await fetch(database, "create table payments (task_id text, attempt integer)")
    fleet.start("server")
    few = {"GRNS_LEASE_SECONDS": "3", "GRNS_DATABASE_POOL_SIZE": "4"}
    worker = fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", "12", **few)
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


@asynccontextmanager
async def own_worker(database: Database, broker: LocalNats, **settings: Any) -> AsyncIterator[Worker]:
    """A worker inside the test's process, not yet running."""
    app = App(settings_for(database.url, broker.url, shutdown_grace_seconds=1, **settings))
    own = app.handlers_database()
    async with app.connections("worker", is_patient=True) as (connections, transport), own.opened():
        yield workers.worker(app, pool, connections, transport, own)


async def stops_without_heartbeat(worker: Worker) -> None:
    """Take the heartbeat process away for good, and wait until nothing is started any more."""
    worker._heartbeat._orders = b"nonsense"
    assert worker._heartbeat.pid is not None
    os.kill(worker._heartbeat.pid, signal.SIGKILL)

    async def is_held() -> bool:
        return worker._slots.is_held

    await eventually(is_held)


@pytest.mark.parametrize("after_seconds", [0.1, 60.0], ids=["free", "busy"])
async def test_a_worker_without_a_heartbeat_takes_nothing_more_and_ends(
    database: Database, broker: LocalNats, monkeypatch: pytest.MonkeyPatch, after_seconds: float
) -> None:
    """What it claimed would be cut before its lease is over, again and again, until it is dead."""
    monkeypatch.setattr(heartbeat_process, "_LEAST_GONE_SECONDS", 1.0)
    # A busy worker takes a few tasks also where no slot is free.
    soon = {"poll_after_seconds": after_seconds, "poll_max_seconds": 0.1, "poll_busy_age_seconds": 0.1}
    async with own_worker(database, broker, lease_seconds=1.5, **soon) as worker:
        running = asyncio.create_task(worker.run())
        before = await submit_many(database, 1)
        await all_in(database, before, within_seconds=20)
        await stops_without_heartbeat(worker)
        ids = await submit_many(database, 3)
        with pytest.raises(UnavailableError, match="no heartbeat process"):
            await asyncio.wait_for(running, 30)
    rows = await rows_of(database, ids)
    assert {(row["status"], row["attempt"]) for row in rows.values()} == {("queued", 0)}


async def test_a_worker_whose_heartbeat_is_not_answered_takes_nothing_more(
    database: Database, broker: LocalNats
) -> None:
    """What it claims would not be renewed, though its own statements are answered."""
    async with own_worker(database, broker, lease_seconds=1.5) as worker:
        running = asyncio.create_task(worker.run())
        await all_in(database, await submit_many(database, 1), within_seconds=20)
        await fetch(database, "alter table grns.workers rename column worked_at to lost")

        async def is_held() -> bool:
            return worker._slots.is_held

        await eventually(is_held)
        ids = await submit_many(database, 3)
        await asyncio.sleep(0.5)
        rows = await rows_of(database, ids)
        assert {(row["status"], row["attempt"]) for row in rows.values()} == {("queued", 0)}
        await fetch(database, "alter table grns.workers rename column lost to worked_at")
        await all_in(database, ids, within_seconds=20)
        worker.stop()
        await running


async def test_a_heartbeat_that_cannot_be_there_without_postgres_is_waited_for(
    database: Database, broker: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat_process, "_LEAST_GONE_SECONDS", 8.0)  # a start takes seconds
    async with own_worker(database, broker, lease_seconds=1.0) as worker:
        running = asyncio.create_task(worker.run())
        await all_in(database, await submit_many(database, 1), within_seconds=20)
        orders, connections = worker._heartbeat._orders, worker._database
        asked = asyncio.Event()

        async def is_away(statement: str, *_: Any) -> Any:
            if statement == "touch_worker":
                asked.set()
            raise UnavailableError("Postgres is away")

        with monkeypatch.context() as away:
            away.setattr(connections, "run", is_away)
            await stops_without_heartbeat(worker)
            await asyncio.wait_for(asked.wait(), 40)
        assert not running.done()
        worker._heartbeat._orders = orders
        await all_in(database, await submit_many(database, 3), within_seconds=20)
        worker.stop()
        await running


async def test_jobs_in_the_loops_threads_do_not_keep_the_heartbeat_from_its_start(
    database: Database, broker: LocalNats
) -> None:
    """They are the handlers' as well: `asyncio.to_thread` uses them."""
    over = threading.Event()
    threads = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(threads)
    async with own_worker(database, broker) as worker:
        busy = asyncio.create_task(asyncio.to_thread(over.wait))
        heartbeat = asyncio.create_task(worker._heartbeat.start())
        try:
            await asyncio.wait_for(asyncio.shield(heartbeat), 20)
            assert worker._heartbeat.is_renewing
        finally:
            over.set()
            await busy
            await asyncio.wait({heartbeat})
            worker._heartbeat.stop()


async def test_a_worker_whose_loop_breaks_gives_back_what_it_has_and_ends(
    database: Database, broker: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would look alive, and not be."""

    async def broken() -> float:
        raise ZeroDivisionError("a bug")

    async with own_worker(database, broker) as worker:
        monkeypatch.setattr(worker, "_poll_loop", PeriodicLoop("poller", broken, emit=worker._emit))
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await asyncio.wait_for(worker.run(), 30)
    rows = await fetch(database, "select stopped_at is not null as has_stopped from grns.workers")
    assert [row["has_stopped"] for row in rows] == [True]


async def test_a_forked_child_keeps_no_heartbeat_of_a_dead_worker(
    fleet: Fleet, database: Database, journal: Callable[[], list[str]]
) -> None:
    """It holds the pipe open by whose end a heartbeat process is told that its worker has died."""
    worker = fleet.start("worker", "start", "tests.support.pools:pool")
    await ready(database, worker)
    await submit_many(database, 1, task_type="fork")

    async def has_forked() -> list[str]:
        return lines_with(journal(), "child")

    (line,) = await eventually(has_forked)
    heartbeats = [pid for pid in children_of(worker.pid) if pid != int(line.split()[1])]
    assert heartbeats
    worker.kill()
    worker.wait()

    async def are_gone() -> bool:
        return not any(is_alive(pid) for pid in heartbeats)

    try:
        await eventually(are_gone, within_seconds=5.0)
    finally:
        os.kill(int(line.split()[1]), signal.SIGKILL)
