"""The broker is disposable: whatever it loses and however long it is away, every task runs."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from grns.dev.servers import LocalNats
from grns.model import subjects
from grns.postgres.database import Database
from tests.support.harness import (
    Fleet,
    Load,
    all_in,
    check_everything,
    eventually,
    manage,
    ready,
    submit,
    submit_many,
)

pytestmark = pytest.mark.timeout(180)

# A task that nobody was told of is found 2 s after the broker fell silent; the rest is for a slow machine.
PICK_UP_SECONDS = 2.5
SLACK = 1.5
PRIORITY_SUBJECT = subjects.durable(subjects.priority_subject("default", "worker", 2))

Journal = Callable[[], list[str]]
Worker = subprocess.Popen[bytes]


def start_worker(fleet: Fleet, concurrency: int = 10, **environment: str) -> Worker:
    """Start a worker that tells where its tasks came from."""
    return fleet.start(
        "worker",
        "start",
        "tests.support.pools:pool",
        "--concurrency",
        str(concurrency),
        GRNS_LOG_LEVEL="debug",
        **environment,
    )


def sources(fleet: Fleet, worker: Worker) -> dict[str, str]:
    """Return where the worker had its tasks from, by id."""
    return {fact["task_id"]: fact["source"] for fact in fleet.facts_of(worker, "task_claimed")}


async def is_consuming(fleet: Fleet, database: Database, worker: Worker) -> None:
    """Wait until the worker gets a task from a lane."""

    async def comes_from_lane() -> bool:
        task = await submit(database)
        await all_in(database, [task.id], within_seconds=10)
        return sources(fleet, worker)[task.id] == "priority"

    await eventually(comes_from_lane)


def waits(rows: dict[str, Any]) -> list[float]:
    """Return how long tasks were queued, in seconds, the longest last."""
    return sorted((row["started_at"] - row["created_at"]).total_seconds() for row in rows.values())


async def seconds_of(database: Database, count: int) -> float:
    """Return how long so many short tasks take."""
    began_at = time.monotonic()
    await all_in(database, await submit_many(database, count), within_seconds=30)
    return time.monotonic() - began_at


async def test_away_while_tasks_flow(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal
) -> None:
    """Tasks are found in Postgres while it is away; its events reach it when it is back, in order."""
    fleet.start("server")
    worker = start_worker(fleet, 5)
    await ready(database, worker)
    await is_consuming(fleet, database, worker)
    seconds_with = await seconds_of(database, 300)
    load = Load(database, least=100, part=5, task_type="effect", payload={"seconds": 0.05})
    await load.reaches(30)
    await asyncio.to_thread(broker.kill)
    before = len(load.ids)
    await load.reaches(before + 70)
    ids = await load.end()
    rows = await all_in(database, ids, within_seconds=PICK_UP_SECONDS + 5.0)
    assert waits(rows)[-1] < PICK_UP_SECONDS + SLACK
    found = sources(fleet, worker)
    assert {found[task_id] for task_id in ids[before:]} == {"poll"}
    # Whoever ran while the broker died ran once: its lease is kept in Postgres.
    assert {row["attempt"] for row in rows.values()} == {1}
    assert len(journal()) == 2 * len(ids)
    # Claiming from Postgres directly is at least half as fast as the fast path, also for short tasks.
    assert await seconds_of(database, 300) < 2 * seconds_with + SLACK
    await asyncio.to_thread(broker.start)
    await is_consuming(fleet, database, worker)
    await check_everything(database, broker.url)


async def test_away_after_a_long_silence(fleet: Fleet, database: Database, broker: LocalNats) -> None:
    """A worker that rests, because nothing came for long, is awake as soon as the broker is gone."""
    worker = start_worker(fleet, GRNS_POLL_AFTER_SECONDS="0.5")
    await ready(database, worker)
    await asyncio.sleep(5.0)  # the silence is the case: the worker asks Postgres less and less often
    await asyncio.to_thread(broker.kill)
    await has_lost_broker(fleet, worker)
    task = await submit(database)
    rows = await all_in(database, [task.id], within_seconds=15)
    assert waits(rows)[-1] < 0.5 + SLACK
    fleet.start("server")
    await asyncio.to_thread(broker.start)
    await check_everything(database, broker.url)


async def has_lost_broker(fleet: Fleet, worker: Worker) -> None:
    """Wait until a worker knows that the broker is gone."""

    async def look() -> bool:
        told = fleet.facts_of(worker, "transport")
        return any(fact["what"] == "broker_disconnected" for fact in told)

    await eventually(look)


async def test_away_at_the_start(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal
) -> None:
    """Workers and daemons start without a broker, do all their work, and use it when it comes."""
    await asyncio.to_thread(broker.kill)
    short = {"GRNS_LEASE_SECONDS": "2", "GRNS_NATS_STARTUP_SECONDS": "1"}
    workers = [start_worker(fleet, 10, **short) for _ in range(2)]
    fleet.start("server", **short)
    await ready(database, *workers)
    rows = await all_in(database, await submit_many(database, 5), within_seconds=PICK_UP_SECONDS + SLACK)
    assert {row["attempt"] for row in rows.values()} == {1}
    retried = await submit(database, "fail_once")
    dies = await submit(database, "effect", payload={"seconds": 600}, max_attempts=1)

    async def owner() -> int | None:
        async with database.connection() as connection:
            pid: int | None = await connection.fetchval(
                "select a.pid from grns.tasks t join grns.workers a on a.agent_id = t.owner_agent_id"
                " where t.id = $1",
                dies.id,
            )
        return pid if f"begin {dies.id} 1" in journal() else None

    pid = await eventually(owner)
    # Retries become due, and leases are taken back.
    await all_in(database, [retried.id], within_seconds=10)
    (victim,) = [worker for worker in workers if worker.pid == pid]
    (other,) = [worker for worker in workers if worker.pid != pid]
    victim.kill()
    await all_in(database, [dies.id], "dead", within_seconds=2 + 0.4 + 1 + 2 * SLACK)
    await asyncio.to_thread(broker.start)
    await is_consuming(fleet, database, other)
    await check_everything(database, broker.url)


async def _delete_one_command(broker: LocalNats) -> None:
    async def is_deleted() -> bool:
        state = (await manage(broker.url, "STREAM.INFO.GRNS_CMD"))["state"]
        if not state["messages"]:
            return False
        try:
            await manage(broker.url, "STREAM.MSG.DELETE.GRNS_CMD", {"seq": state["last_seq"]})
        except AssertionError:  # a worker was faster
            return False
        return True

    await eventually(is_deleted, every=0.0)


HARMS: dict[str, Callable[[LocalNats], Awaitable[Any]]] = {
    "commands purged": lambda broker: manage(broker.url, "STREAM.PURGE.GRNS_CMD"),
    "one command deleted": _delete_one_command,
    "durable deleted": lambda broker: manage(broker.url, f"CONSUMER.DELETE.GRNS_CMD.{PRIORITY_SUBJECT}"),
    "commands' stream deleted": lambda broker: manage(broker.url, "STREAM.DELETE.GRNS_CMD"),
    "events' stream deleted": lambda broker: manage(broker.url, "STREAM.DELETE.GRNS_EVT"),
    "letters' stream deleted": lambda broker: manage(broker.url, "STREAM.DELETE.GRNS_DLQ"),
    "everything wiped": lambda broker: asyncio.to_thread(broker.wipe),
}


async def test_harmed_under_load(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal
) -> None:
    """Whatever an administrator deletes while tasks flow: nothing is lost, nothing runs twice."""
    fleet.start("server")
    worker = start_worker(fleet, 5)
    await ready(database, worker)
    await is_consuming(fleet, database, worker)
    load = Load(database, least=100, part=10, task_type="effect", payload={"seconds": 0.05})
    dying: list[str] = []
    for harm in HARMS.values():
        dying += await submit_many(database, 3, task_type="fail_once", max_attempts=1)
        await load.reaches(len(load.ids) + 50)
        await harm(broker)
    await load.reaches(len(load.ids) + 50)
    ids = await load.end()
    rows = await all_in(database, ids, within_seconds=20)
    await all_in(database, dying, "dead", within_seconds=20)
    assert {row["attempt"] for row in rows.values()} == {1}
    assert len(journal()) == 2 * len(ids) + len(dying)
    await is_consuming(fleet, database, worker)
    await check_everything(database, broker.url, has_lost=True)


async def test_full_lane(fleet: Fleet, database: Database, broker: LocalNats) -> None:
    """A command that its subject has no room for counts as published; its task is found in Postgres."""
    small = {"GRNS_NATS_CMD_MAX_PER_SUBJECT": "5"}
    relay = fleet.start("server", **small)
    ids = await submit_many(database, 100)

    async def is_full() -> bool:
        refused = [fact["code"] for fact in fleet.facts_of(relay, "message_refused")]
        return refused.count("full") > 0

    await eventually(is_full)
    worker = start_worker(fleet, 20, **small)
    await ready(database, worker)
    await all_in(database, ids, within_seconds=2 * PICK_UP_SECONDS + SLACK)
    await check_everything(database, broker.url)
