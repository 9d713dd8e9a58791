"""Postgres goes away, cuts connections, or is held up by a stranger: work waits for it and goes on."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import grns
from grns.dev.servers import LocalNats, LocalPostgres
from grns.errors import NotFoundError, OutcomeUnknownError, UnavailableError
from grns.postgres import migrate
from grns.postgres.database import Database
from tests.support.harness import (
    Fleet,
    Load,
    all_in,
    check_everything,
    children_of,
    eventually,
    is_relayed,
    lines_with,
    read_stream,
    ready,
    submit,
    submit_many,
)

pytestmark = pytest.mark.timeout(180)

Journal = Callable[[], list[str]]
Worker = subprocess.Popen[bytes]

RESUME_SECONDS = 2.0
SLACK = 1.5
AT_ONCE_SECONDS = 1.0
NO_BROKER = "nats://127.0.0.1:1"


@pytest.fixture(scope="module")
def postgres(directory: Path) -> Iterator[LocalPostgres]:
    """A server of this module's own: it is ended and started again."""
    with LocalPostgres(directory / f"postgres-{uuid.uuid4().hex}") as server:
        asyncio.run(migrate.upgrade(server.url))
        yield server


@pytest.fixture
async def database_url(postgres: LocalPostgres) -> AsyncIterator[str]:
    """A database of the test's own, on no connection that has to outlive a restart."""
    name = f"test_{uuid.uuid4().hex}"
    connection = await asyncpg.connect(postgres.admin_url)
    await connection.execute(f"create database {name} template grns")
    await connection.close()
    yield f"{postgres.admin_url.rsplit('/', 1)[0]}/{name}"
    postgres.start()


def environment(lease: float) -> dict[str, str]:
    """Return settings for short leases."""
    return {"GRNS_LEASE_SECONDS": str(lease), "GRNS_SHUTDOWN_GRACE_SECONDS": "1"}


async def start(fleet: Fleet, database: Database, lease: float, concurrency: int = 5) -> Worker:
    """Start a server and a worker, and wait until it takes tasks."""
    fleet.start("server", **environment(lease))
    worker = start_worker(fleet, lease, concurrency)
    await ready(database, worker)

    async def takes_tasks() -> bool:
        return bool(fleet.facts_of(worker, "worker_ready"))

    await eventually(takes_tasks)
    return worker


def start_worker(fleet: Fleet, lease: float, concurrency: int, *, agent: str = "worker") -> Worker:
    """Start a worker of an agent type."""
    more = environment(lease) | {"GRNS_TEST_AGENT_TYPE": agent}
    return fleet.start(
        "worker", "start", "tests.support.pools:pool", "--concurrency", str(concurrency), **more
    )


async def all_begun(journal: Journal, ids: list[str]) -> None:
    """Wait until the handlers of all these tasks have begun."""

    async def look() -> bool:
        return all(lines_with(journal(), "begin", task_id) for task_id in ids)

    await eventually(look)


async def started_at(database_url: str) -> datetime:
    """Return when Postgres was ready for connections again, which is now."""
    connection = await asyncpg.connect(database_url)
    try:
        now: datetime = await connection.fetchval("select now()")
    finally:
        await connection.close()
    return now


@pytest.mark.parametrize("is_crash", [False, True], ids=["restart", "crash"])
async def test_away_for_less_than_a_lease(
    fleet: Fleet, database: Database, database_url: str, postgres: LocalPostgres, broker: LocalNats,
    journal: Journal, tmp_path: Path, is_crash: bool,
) -> None:  # fmt: skip
    """Outcomes are held and written when it is back: nothing runs twice, new tasks run at once."""
    await start(fleet, database, 6.0)
    file = tmp_path / "file"
    ids = await submit_many(database, 5, task_type="until", payload={"file": str(file)})
    await all_begun(journal, ids)
    await asyncio.to_thread(postgres.kill if is_crash else postgres.stop)
    file.touch()

    async def have_ended() -> bool:
        return len(lines_with(journal(), "end")) == len(ids)

    await eventually(have_ended)
    await asyncio.to_thread(postgres.start)
    ready_at = await started_at(database_url)
    ids += [(await submit(database, "effect", payload={"seconds": 0.1})).id]
    rows = await all_in(database, ids, within_seconds=RESUME_SECONDS + SLACK)
    assert {row["attempt"] for row in rows.values()} == {1}
    assert max(row["finished_at"] for row in rows.values()) - ready_at < timedelta(
        seconds=RESUME_SECONDS + SLACK
    )
    assert sorted(journal()) == sorted(f"{word} {task_id} 1" for word in ("begin", "end") for task_id in ids)
    await check_everything(database, broker.url)


async def test_away_for_longer_than_a_lease(
    fleet: Fleet, database: Database, database_url: str, postgres: LocalPostgres, broker: LocalNats,
    journal: Journal, tmp_path: Path,
) -> None:  # fmt: skip
    """Reapers hold still for a lease, so that whoever still runs keeps its task; the others run once more."""
    lease = 2.0
    fleet.start("server", **environment(lease))
    blocking = start_worker(fleet, lease, 1, agent="blocking")
    told, killed = start_worker(fleet, lease, 4), start_worker(fleet, lease, 1)
    await ready(database, blocking, told, killed)
    # It blocks its loop, so nobody can tell it that its lease may be over: it is renewed when it can be.
    payload = {"seconds": 4 * lease}
    blocked = await submit(database, "block_loop", agent_type="blocking", payload=payload)
    file = tmp_path / "file"
    others = await submit_many(database, 5, task_type="until", payload={"file": str(file)})
    await all_begun(journal, [blocked.id, *others])
    async with database.connection() as connection:
        orphan = await connection.fetchval(
            "select t.id from grns.tasks t join grns.workers a on a.agent_id = t.owner_agent_id"
            " where a.pid = $1",
            killed.pid,
        )
    given_back = [task_id for task_id in others if task_id != orphan]
    assert len(given_back) == 4
    await asyncio.to_thread(postgres.stop)
    killed.kill()

    async def are_cancelled() -> bool:
        return len(lines_with(journal(), "cancelled")) == len(given_back)

    await eventually(are_cancelled, within_seconds=lease + SLACK)
    await asyncio.sleep(lease / 2)  # now the lease is over for everybody
    await asyncio.to_thread(postgres.start)
    ready_at = await started_at(database_url)
    file.touch()
    ids = [blocked.id, *others]
    rows = await all_in(database, ids, within_seconds=5 * lease + RESUME_SECONDS + SLACK)
    stories = await check_everything(database, broker.url)
    assert rows[blocked.id]["attempt"] == 1
    (expired,) = [one for one in stories[orphan] if one["kind"] == "evt.task.lease_expired"]
    held = (expired["created_at"] - ready_at).total_seconds()
    assert lease - 0.5 < held < lease + lease / 5 + RESUME_SECONDS + SLACK
    for task_id in given_back:
        assert [one["kind"].rpartition(".")[2] for one in stories[task_id]] == [
            "queued", "claimed", "released", "claimed", "completed",
        ]  # fmt: skip


async def test_heartbeat_dies_while_it_is_away(
    fleet: Fleet, database: Database, postgres: LocalPostgres, broker: LocalNats, journal: Journal,
    tmp_path: Path,
) -> None:  # fmt: skip
    """A heartbeat that starts while Postgres is away waits for it: leases are kept again from then on."""
    lease = 4.0
    worker = await start(fleet, database, lease)
    await asyncio.to_thread(postgres.stop)
    for pid in children_of(worker.pid):
        os.kill(pid, signal.SIGKILL)

    async def has_tried() -> bool:
        return bool(fleet.facts_of(worker, "heartbeat_ended"))

    await eventually(has_tried)

    async def is_waiting() -> bool:
        return bool(fleet.facts_of(worker, "postgres_awaited"))

    await eventually(is_waiting)
    await asyncio.to_thread(postgres.start)
    file = tmp_path / "file"
    task = await submit(database, "until", payload={"file": str(file)})
    await all_begun(journal, [task.id])
    async with database.connection() as connection:
        first = await connection.fetchval("select lease_until from grns.tasks where id = $1", task.id)

    async def is_renewed() -> bool:
        async with database.connection() as connection:
            row = await connection.fetchrow(
                "select attempt, lease_until from grns.tasks where id = $1", task.id
            )
        assert row is not None
        assert row["attempt"] == 1
        return row["lease_until"] is not None and bool(row["lease_until"] > first)

    await eventually(is_renewed, within_seconds=lease + SLACK)
    file.touch()
    rows = await all_in(database, [task.id], within_seconds=5)
    assert rows[task.id]["attempt"] == 1
    await check_everything(database, broker.url)


async def test_storm_of_cut_connections(
    fleet: Fleet, database: Database, database_url: str, broker: LocalNats, journal: Journal
) -> None:
    """Whatever a cut leaves unknown is looked up: nothing is lost, no attempt runs or ends twice."""
    lease = 3.0
    await start(fleet, database, lease, 10)
    admin = await asyncpg.connect(database_url)
    load = Load(database, least=200, part=10, task_type="effect", payload={"seconds": 0.05})
    await load.reaches(10)

    async def cut() -> Any:
        return await admin.fetch(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name like 'grns %'"
            " and application_name <> 'grns test'"
        )

    for _ in range(12):
        await eventually(cut)
        await asyncio.sleep(0.15)  # the storm's own beat
    ids = await load.end()
    await admin.close()
    rows = await all_in(database, ids, within_seconds=20)
    begins = lines_with(journal(), "begin")
    assert len(set(begins)) == len(begins)
    # A claim without an answer may be found out too late: its attempt has never begun. None has begun twice.
    assert len(begins) == len(ids)
    assert max(row["attempt"] for row in rows.values()) <= 2
    await check_everything(database, broker.url)


async def test_open_transaction_of_a_stranger(
    fleet: Fleet, database: Database, database_url: str, broker: LocalNats
) -> None:
    """What a stranger has not committed holds nothing up; it is told once committed, or given up."""
    await start(fleet, database, 15.0)
    strangers = [await asyncpg.connect(database_url) for _ in range(2)]
    transactions = [stranger.transaction() for stranger in strangers]
    hidden = []
    for stranger, transaction in zip(strangers, transactions, strict=True):
        await transaction.start()
        hidden.append(await stranger.fetchval("select grns.submit_task('noop')"))
    ids = await submit_many(database, 50)
    await all_in(database, ids, within_seconds=10)

    async def heard() -> set[str]:
        return {one.headers["Grns-Task"] for one in await read_stream(broker.url, "GRNS_EVT")}

    async def are_told() -> bool:
        told = [one.headers["Grns-Task"] for one in await read_stream(broker.url, "GRNS_EVT")]
        return len(told) == 3 * len(ids) and set(told) == set(ids)

    await eventually(are_told, within_seconds=RESUME_SECONDS + SLACK)
    assert not await is_relayed(database)
    await transactions[0].commit()
    await all_in(database, hidden[:1], within_seconds=RESUME_SECONDS + SLACK)

    async def is_told() -> bool:
        return hidden[0] in await heard()

    await eventually(is_told, within_seconds=RESUME_SECONDS + SLACK)
    assert not await is_relayed(database)
    await transactions[1].rollback()
    for stranger in strangers:
        await stranger.close()
    await check_everything(database, broker.url)
    assert hidden[1] not in await heard()


@pytest.mark.parametrize(
    "command",
    ["worker", "server", "relay", "reaper", "scheduler", "janitor", "operations", "api"],
)
async def test_process_that_starts_while_postgres_is_away_waits_for_it(
    fleet: Fleet, postgres: LocalPostgres, command: str
) -> None:
    """Reliability: it ended at once with code 5, and each of its lines is JSON, few of them."""
    await asyncio.to_thread(postgres.stop)
    if command == "worker":
        process = start_worker(fleet, 2.0, 1)
    else:
        port = ["--port", "0"] if command == "api" else []
        words = [command] if command == "server" else ["daemon", command]
        process = fleet.start(*words, *port, **environment(2.0), GRNS_LOG_FORMAT="json")

    async def waits() -> bool:
        assert process.poll() is None, fleet.log_of(process)
        return bool(fleet.facts_of(process, "postgres_awaited"))

    await eventually(waits, within_seconds=20)
    await asyncio.sleep(3.0)  # how many lines a second, is the question
    lines = fleet.log_of(process).splitlines()
    assert len(lines) < 10
    assert all(line.startswith("{") for line in lines), lines
    await asyncio.to_thread(postgres.start)

    async def has_started() -> bool:
        return bool(fleet.facts_of(process, "service_started"))

    await eventually(has_started, within_seconds=20)
    assert process.poll() is None


async def hangs_up(client: grns.Client) -> None:
    """Wait until the last of a crashed server's processes has gone: one may answer for a moment more."""

    async def look() -> bool:
        try:
            await client.get("gr-0")
        except NotFoundError:
            return False
        except UnavailableError:
            return True
        raise AssertionError("there is no such task")

    await eventually(look)


@pytest.mark.parametrize("is_crash", [False, True], ids=["stopped", "crashed"])
async def test_submit_while_it_is_away(database_url: str, postgres: LocalPostgres, is_crash: bool) -> None:
    """Nothing was done, and whoever asked is told so at once; afterwards all of it is new."""
    many = [{"task": "noop", "pool": "worker", "idempotency_key": f"many-{number}"} for number in range(1200)]
    async with grns.connect(database_url=database_url, nats_url=NO_BROKER) as client:
        await client.submit("noop", pool="worker")
        await asyncio.to_thread(postgres.kill if is_crash else postgres.stop)
        await hangs_up(client)
        for turn in range(3):
            began_at = time.monotonic()
            with pytest.raises(UnavailableError) as one:
                await client.submit("noop", pool="worker", idempotency_key=f"one-{turn}")
            with pytest.raises(UnavailableError) as all_of_many:
                await client.submit_many(many)
            assert time.monotonic() - began_at < AT_ONCE_SECONDS
            assert not isinstance(one.value, OutcomeUnknownError)
            assert not isinstance(all_of_many.value, OutcomeUnknownError)
        await asyncio.to_thread(postgres.start)
        await started_at(database_url)
        assert (await client.submit("noop", pool="worker", idempotency_key="one-0")).created
        answers = await client.submit_many(many)
    assert all(isinstance(answer, grns.TaskHandle) and answer.created for answer in answers)
    assert await _keys(database_url) == sorted(["one-0", *(str(one["idempotency_key"]) for one in many)])


async def test_submit_while_it_goes_away(database_url: str, postgres: LocalPostgres) -> None:
    """What was under way has happened or not: sent again under its key, it is there once."""
    took: list[float] = []
    under_way: list[int] = []
    async with grns.connect(database_url=database_url, nats_url=NO_BROKER) as client:

        async def submit(number: int) -> bool:
            began_at = time.monotonic()
            under_way.append(number)
            try:
                await client.submit("noop", pool="worker", idempotency_key=f"key-{number}")
            except UnavailableError:
                return False
            finally:
                took.append(time.monotonic() - began_at)
            return True

        async def submit_until_away(place: int) -> None:
            numbers = itertools.count(place, 20)
            while await submit(next(numbers)):
                pass

        submitting = [asyncio.create_task(submit_until_away(place)) for place in range(20)]

        async def have_begun() -> bool:
            return len(took) > 100

        await eventually(have_begun)
        await asyncio.to_thread(postgres.kill)
        await asyncio.gather(*submitting)
        assert max(took) < AT_ONCE_SECONDS
        await asyncio.to_thread(postgres.start)
        await started_at(database_url)
        for number in under_way:
            await client.submit("noop", pool="worker", idempotency_key=f"key-{number}")
    assert await _keys(database_url) == sorted(f"key-{number}" for number in under_way)


async def _keys(database_url: str) -> list[str]:
    connection = await asyncpg.connect(database_url)
    try:
        rows = await connection.fetch("select idempotency_key from grns.tasks where idempotency_key <> ''")
    finally:
        await connection.close()
    return sorted(row["idempotency_key"] for row in rows)
