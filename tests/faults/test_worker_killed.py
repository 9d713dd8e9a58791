"""A worker is killed at each of its five moments: nothing is lost, nothing ends twice."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.support.harness import (
    Fleet,
    Load,
    all_in,
    check_everything,
    eventually,
    lines_with,
    manage,
    ready,
    submit,
)

pytestmark = pytest.mark.timeout(180)

LEASE = 2.0
TICK = LEASE / 5
# What the promise (lease + reap tick + 1 s) does not count: the handlers' own time, and a slow machine.
SLACK = 5.0
BOUND = LEASE + TICK + 1.0
ENVIRONMENT = {"GRNS_LEASE_SECONDS": str(LEASE), "GRNS_SHUTDOWN_GRACE_SECONDS": "1"}

Journal = Callable[[], list[str]]
Worker = subprocess.Popen[bytes]


def start_worker(fleet: Fleet, failpoint: str = "", **environment: str) -> Worker:
    """Start a worker of one slot that dies (or loses its connection) at a moment."""
    return fleet.start(
        "worker", "start", "tests.support.pools:pool", "--concurrency", "1",
        GRNS_FAILPOINTS=failpoint, **ENVIRONMENT, **environment,
    )  # fmt: skip


async def die(*victims: Worker) -> None:
    """Wait until they have all been killed."""

    async def are_gone() -> bool:
        return all(victim.poll() is not None for victim in victims)

    await eventually(are_gone)
    assert {victim.returncode for victim in victims} == {-signal.SIGKILL}


async def is_drained(broker: LocalNats) -> None:
    """Wait until the commands of the dead have been delivered again, and acked without effect."""

    async def look() -> bool:
        return not (await manage(broker.url, "STREAM.INFO.GRNS_CMD"))["state"]["messages"]

    await eventually(look, within_seconds=LEASE + 5.0)


async def check_promptness(database: Database) -> int:
    """No lease is taken back before its end, nor long after it, by the database's clock; return how many."""
    async with database.connection() as connection:
        rows = await connection.fetch(
            "select extract(epoch from created_at - (payload->>'lease_until')::timestamptz)::float8 as late"
            " from grns.events where kind = 'evt.task.lease_expired'"
        )
    assert all(0.0 <= row["late"] < TICK + 1.0 + SLACK for row in rows), rows
    return len(rows)


async def claimed_by(database: Database, worker: Worker, stories: dict[str, list[Any]]) -> list[str]:
    """Return the tasks that a worker has claimed, in order."""
    async with database.connection() as connection:
        agent = await connection.fetchval("select agent_id from grns.workers where pid = $1", worker.pid)
        rows = await connection.fetch(
            "select task_id from grns.events where kind = 'evt.task.claimed' and payload->>'agent_id' = $1"
            " order by seq",
            agent,
        )
    return [row["task_id"] for row in rows if row["task_id"] in stories]


def told(story: Sequence[Any]) -> list[str]:
    """Return what happened to a task, in short."""
    return [event["kind"].rpartition(".")[2] for event in story]


async def test_killed_at_each_moment(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal
) -> None:
    """At most one task of each victim is attempted again; how often it runs follows from the moment."""
    fleet.start("server", **ENVIRONMENT)
    before_claim = start_worker(fleet, "worker.before_claim=kill#1")
    claimed = start_worker(fleet, "worker.after_claim=kill#1")
    in_handler = start_worker(fleet, GRNS_TEST_DIES_IN="effect")
    not_committed = start_worker(fleet, "worker.handler_ended=kill#1")
    not_acked = start_worker(fleet, "worker.finished=kill#1")
    victims = (before_claim, claimed, in_handler, not_committed, not_acked)
    survivor = start_worker(fleet)
    await ready(database, *victims, survivor)
    load = Load(database, least=20, part=6, task_type="effect", payload={"seconds": 0.1})
    await die(*victims)
    ids = await load.end()
    await all_in(database, ids, within_seconds=BOUND + 0.15 * len(ids) + SLACK)
    # The command of the dead worker is delivered again, and acked without effect.
    await is_drained(broker)
    stories = await check_everything(database, broker.url)
    assert await claimed_by(database, before_claim, stories) == []
    executions = {
        claimed: ["begin 2"],
        in_handler: ["begin 1", "begin 2"],
        not_committed: ["begin 1", "begin 2"],
    }
    for victim, begins in executions.items():
        (task_id,) = await claimed_by(database, victim, stories)
        assert told(stories[task_id]) == ["queued", "claimed", "lease_expired", "claimed", "completed"]
        assert lines_with(journal(), "begin", task_id) == [
            f"begin {task_id} {begin.split()[1]}" for begin in begins
        ]
        ends = [1, 2] if victim is not_committed else [2]
        assert lines_with(journal(), "end", task_id) == [f"end {task_id} {attempt}" for attempt in ends]
    # While a worker writes an outcome, it may claim the next task.
    task_id, *following = await claimed_by(database, not_acked, stories)
    assert told(stories[task_id]) == ["queued", "claimed", "completed"]
    assert [told(stories[one]) for one in following] in (
        [], [["queued", "claimed", "lease_expired", "claimed", "completed"]],
    )  # fmt: skip
    assert await check_promptness(database) == 3 + len(following)
    # Nobody else's task has run twice.
    again = [len(lines_with(journal(), "begin", one)) - 1 for one in following]
    assert len(lines_with(journal(), "begin")) == len(ids) + 2 + sum(again)


async def test_gone_before_the_commit(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal
) -> None:
    """What a handler wrote in the transaction of its finish is there once, or went with it as a whole."""
    async with database.connection() as connection:
        await connection.execute("create table payments (task_id text, attempt integer)")
    fleet.start("server", **ENVIRONMENT)
    killed = start_worker(fleet, "worker.finished_not_committed=kill#1")
    cut = start_worker(fleet, "worker.finished_not_committed=drop#1")
    await ready(database, killed, cut)
    load = Load(database, least=6, part=3, task_type="pay")
    await die(killed)
    ids = await load.end()
    rows = await all_in(database, ids, within_seconds=BOUND + SLACK)
    stories = await check_everything(database, broker.url)
    lost = [
        kind for story in stories.values() for kind in told(story) if kind in ("lease_expired", "released")
    ]
    assert sorted(lost) == ["lease_expired", "released"]
    async with database.connection() as connection:
        paid = await connection.fetch("select task_id, attempt from payments")
    assert sorted((row["task_id"], row["attempt"]) for row in paid) == sorted(
        (task_id, row["attempt"]) for task_id, row in rows.items()
    )
    for task_id, row in rows.items():
        assert len(lines_with(journal(), "begin", task_id)) == row["attempt"]


async def test_a_task_that_kills_its_worker_each_time_ends(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal
) -> None:
    """Whoever runs it next dies too: the attempts are bounded, and it ends as `dead`."""
    fleet.start("server", **ENVIRONMENT)
    workers = [start_worker(fleet, GRNS_TEST_DIES_IN="effect") for _ in range(2)]
    await ready(database, *workers)
    task = await submit(database, "effect", payload={}, max_attempts=2)
    rows = await all_in(database, [task.id], "dead", within_seconds=2 * BOUND + SLACK)
    await asyncio.gather(*(die(worker) for worker in workers))
    story = (await check_everything(database, broker.url))[task.id]
    assert told(story) == ["queued", "claimed", "lease_expired", "claimed", "dead"]
    assert '"lease_expired"' in rows[task.id]["last_error"]
    assert len(lines_with(journal(), "begin", task.id)) == 2
