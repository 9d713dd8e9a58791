"""A worker is killed at each of its five moments: nothing is lost, nothing ends twice."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable

import pytest

from grns.local import LocalNats
from grns.store.database import Database
from tests.harness import (
    Fleet,
    all_in,
    check_stories,
    eventually,
    lines_with,
    manage,
    ready,
    submit,
    submit_many,
)

LEASE = 2.0
TICK = LEASE / 5
# What the promise (lease + reap tick + 1 s) does not count: the handlers' own time, and a slow machine.
SLACK = 3.0
TASKS = 6
ENVIRONMENT = {"GRNS_LEASE_SECONDS": str(LEASE), "GRNS_SHUTDOWN_GRACE_SECONDS": "1"}

Journal = Callable[[], list[str]]


async def start(fleet: Fleet, database: Database, failpoint: str) -> tuple[int, Callable[[], int | None]]:
    """Start a server, a worker that will be killed, and one that survives; return how to see the end."""
    fleet.start("server", **ENVIRONMENT)
    victim = fleet.start(
        "worker", "tests.pools:pool", "--concurrency", "1", GRNS_FAILPOINTS=failpoint, **ENVIRONMENT
    )
    survivor = fleet.start("worker", "tests.pools:pool", "--concurrency", "1", **ENVIRONMENT)
    await ready(database, victim, survivor)
    return victim.pid, victim.poll


async def dies(poll: Callable[[], int | None]) -> None:
    """Wait until the victim is gone."""

    async def is_gone() -> bool:
        return poll() is not None

    await eventually(is_gone)
    assert poll() == -signal.SIGKILL


async def commands_left(broker: LocalNats) -> int:
    """Return how many commands the broker still holds."""
    return int((await manage(broker.url, "STREAM.INFO.GRNS_CMD"))["state"]["messages"])


async def check_recovery(
    database: Database, broker: LocalNats, ids: list[str], died_at: float
) -> dict[str, int]:
    """Wait for the end of all tasks, check it, and return how often each was attempted."""
    bound = LEASE + TICK + 1.0 + SLACK
    rows = await all_in(database, ids, within_seconds=died_at + bound - time.monotonic())
    stories = await check_stories(database, ids)
    for story in stories.values():
        for event in story:
            if event["kind"] == "evt.task.lease_expired":
                await check_promptness(database, event["seq"])

    async def is_drained() -> bool:
        return await commands_left(broker) == 0

    # The command of the dead worker is delivered again, and acked without effect.
    await eventually(is_drained, within_seconds=LEASE + 5.0)
    await check_stories(database, ids)
    return {task_id: row["attempt"] for task_id, row in rows.items()}


async def check_promptness(database: Database, seq: int) -> None:
    """No lease is taken back before its end, nor long after it, by the database's clock."""
    async with database.connection() as connection:
        late = await connection.fetchval(
            "select extract(epoch from created_at - (payload->>'lease_until')::timestamptz)::float8"
            " from grns.events where seq = $1",
            seq,
        )
    assert 0.0 <= late < TICK + 1.0


@pytest.mark.parametrize(
    ("moment", "attempts", "executions"),
    [
        pytest.param("worker.before_claim", 1, 1, id="before_claim"),
        pytest.param("worker.after_claim", 2, 1, id="after_claim"),
        pytest.param("worker.handler_ended", 2, 2, id="handler_ended"),
        pytest.param("worker.finished", 1, 1, id="finished"),
    ],
)
async def test_killed_at_a_moment(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal,
    moment: str, attempts: int, executions: int,
) -> None:  # fmt: skip
    """One task at most is attempted again; which are, and how often they run, follows from the moment."""
    _, poll = await start(fleet, database, f"{moment}=kill#1")
    ids = await submit_many(database, TASKS, task_type="effect", payload={"seconds": 0.1})
    await dies(poll)
    made = await check_recovery(database, broker, ids, time.monotonic())
    assert sorted(made.values()) == sorted([1] * (TASKS - 1) + [attempts])
    begins = [len(lines_with(journal(), "begin", task_id)) for task_id in ids]
    assert sorted(begins) == sorted([1] * (TASKS - 1) + [executions])
    for task_id, attempt in made.items():
        assert lines_with(journal(), "end", task_id)[-1] == f"end {task_id} {attempt}"


async def test_killed_in_the_handler(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal
) -> None:
    """The handler that was killed in its sleep runs once more, from its begin, elsewhere."""
    pid, poll = await start(fleet, database, "")
    async with database.connection() as connection:
        victim = await connection.fetchval("select agent_id from grns.agents where pid = $1", pid)
    ids = await submit_many(database, 2, task_type="effect", payload={"seconds": 1.5})

    async def running() -> str | None:
        async with database.connection() as connection:
            task_id: str | None = await connection.fetchval(
                "select id from grns.tasks where owner_agent_id = $1", victim
            )
        return task_id if task_id and lines_with(journal(), "begin", task_id) else None

    task_id = await eventually(running)
    assert task_id is not None
    os.kill(pid, signal.SIGKILL)
    await dies(poll)
    made = await check_recovery(database, broker, ids, time.monotonic() + 1.5)
    assert made[task_id] == 2
    assert lines_with(journal(), "begin", task_id) == [f"begin {task_id} 1", f"begin {task_id} 2"]
    assert lines_with(journal(), "end", task_id) == [f"end {task_id} 2"]


@pytest.mark.parametrize("action", ["kill", "drop"])
async def test_killed_before_the_commit(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal, action: str
) -> None:
    """What the handler wrote in the transaction of its finish is there once, or the commit was lost whole."""
    async with database.connection() as connection:
        await connection.execute("create table payments (task_id text, attempt integer)")
    _, poll = await start(fleet, database, f"worker.finished_not_committed={action}#1")
    ids = await submit_many(database, TASKS, task_type="pay")
    if action == "kill":
        await dies(poll)
    made = await check_recovery(database, broker, ids, time.monotonic())
    assert sorted(made.values()) == [1] * (TASKS - 1) + [2]
    async with database.connection() as connection:
        paid = await connection.fetch("select task_id, attempt from payments")
    assert sorted((row["task_id"], row["attempt"]) for row in paid) == sorted(made.items())
    for task_id, attempt in made.items():
        assert len(lines_with(journal(), "begin", task_id)) == attempt


async def test_a_task_that_kills_its_worker_each_time_ends(
    fleet: Fleet, database: Database, journal: Journal
) -> None:
    """Whoever runs it next dies too: the attempts are bounded, and it ends as `dead`."""
    fleet.start("server", **ENVIRONMENT)
    workers = [
        fleet.start(
            "worker", "tests.pools:pool", GRNS_FAILPOINTS="worker.handler_ended=kill#1", **ENVIRONMENT
        )
        for _ in range(2)
    ]
    await ready(database, *workers)
    task = await submit(database, "effect", payload={"seconds": 0.1}, max_attempts=2)
    rows = await all_in(database, [task.id], "dead", within_seconds=2 * (LEASE + TICK + 1) + SLACK)
    await asyncio.gather(*(dies(worker.poll) for worker in workers))
    story = (await check_stories(database, [task.id]))[task.id]
    assert [event["kind"].rpartition(".")[2] for event in story] == [
        "queued", "claimed", "lease_expired", "claimed", "dead",
    ]  # fmt: skip
    assert '"lease_expired"' in rows[task.id]["last_error"]
    assert len(lines_with(journal(), "begin", task.id)) == 2
