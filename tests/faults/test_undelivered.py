"""A queue is stuck where a worker has room and takes nothing, not where it is long: a real worker's word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from grns.maintenance.audit import audit_now
from grns.postgres.database import Database
from tests.support.harness import START_SECONDS, Fleet, all_in, eventually, ready, submit, submit_many
from tests.support.store import fetch, stranger

pytestmark = pytest.mark.timeout(120)

PATIENCE_SECONDS = 3.0
# Heartbeats come every third of a lease, well within the patience.
SHORT = {"GRNS_LEASE_SECONDS": "3", "GRNS_SHUTDOWN_GRACE_SECONDS": "1"}


async def undelivered(database: Database) -> list[str | None]:
    """Look once, and return the tasks that are said to be stuck in their queue."""
    findings = await audit_now(database, PATIENCE_SECONDS)
    return [finding.task_id for finding in findings if finding.invariant == "undelivered"]


async def test_a_busy_worker_with_a_long_queue_is_no_finding_and_an_idle_one_is(
    fleet: Fleet, database: Database, journal: Callable[[], list[str]]
) -> None:
    ids = await submit_many(database, 3000, task_type="effect", payload={"seconds": 0.04})
    await fetch(database, "update grns.tasks set queued_at = now() - interval '1 h'")
    fleet.start("server", **SHORT)
    worker = fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", "20", **SHORT)
    await ready(database, worker)

    async def has_said_so() -> bool:
        """Whoever has just opened its lanes has been idle until then, and is, until its next heartbeat."""
        (row,) = await fetch(database, "select max(worked_at) > min(started_at) as said from grns.workers")
        return len(journal()) > 0 and bool(row["said"])

    await eventually(has_said_so, within_seconds=START_SECONDS)
    waited = 0
    while True:
        (row,) = await fetch(
            database,
            "select count(*) filter (where queued_at < now() - $1 * interval '1 s') as late,"
            " count(finished_at) as ended from grns.tasks",
            PATIENCE_SECONDS,
        )
        assert await undelivered(database) == []
        waited += row["late"] > 0
        if row["ended"] == len(ids):
            break
        await asyncio.sleep(0.05)
    assert waited > 5, "a queue older than the patience was looked at"

    # What a stranger holds nobody can claim: the worker has room, and takes nothing. (Made one of this
    # worker's behind the broker's back, it is found by the poll alone, and that leaves it for 2 s.)
    held = (await submit(database, agent_type="nobody")).id
    async with stranger(database) as connection:
        await fetch(
            database, "update grns.tasks set agent_type = 'worker', queued_at = now() where id = $1", held
        )
        await connection.fetch("select from grns.tasks where id = $1 for share", held)

        async def is_found() -> list[str | None]:
            return await undelivered(database)

        assert await eventually(is_found) == [held]
    await all_in(database, [held], within_seconds=30)
    assert await undelivered(database) == []
