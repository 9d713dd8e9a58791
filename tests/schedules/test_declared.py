"""Schedules of a pool, which its workers put in place, and of a client."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

import grns
from grns.client.client import Client
from grns.errors import InvalidInputError, NotFoundError
from grns.model.json import DEFAULT_LIMITS
from grns.postgres.database import Database
from grns.schedules import service as store
from grns.worker.declared import put_declared
from tests.schedules.test_scheduler import let_be_due, runs, scheduler
from tests.support.store import fetch


class Days(BaseModel):
    """What a report is about."""

    days: int


async def declare(database: Database, pool: grns.Pool) -> None:
    """Put the schedules of a pool in place, as its worker does."""
    await put_declared(database, pool.schedules, workspace="default", actor="w", limits=DEFAULT_LIMITS)


def pool_of(cron: str = "0 * * * *") -> grns.Pool:
    """Return a pool with two schedules of one handler."""
    pool = grns.Pool("reports")

    @pool.cron(cron, payload=Days(days=1), time_zone="Europe/Vienna", pause_after_failures=3)
    @pool.every(
        timedelta(hours=2),
        name="often",
        payload={"days": 2},
        overlap="queue_one",
        priority=1,
        jitter_seconds=9,
    )
    @pool.task(max_attempts=5)
    async def write_report(_: Days) -> None: ...

    return pool


async def test_a_worker_puts_the_schedules_of_its_pool_in_place(shared: Database) -> None:
    await declare(shared, pool_of())
    page = await store.list_schedules(shared, workspace="default", limit=10)
    often, report = page.rows
    assert (report.name, report.agent_type, report.when) == (
        "reports-write_report",
        "reports",
        "0 * * * * Europe/Vienna",
    )
    assert (report.jitter_seconds, often.jitter_seconds) == (0, 9)
    assert (report.pause_after_failures, often.pause_after_failures) == (3, None)
    assert (report.payload, report.updated_by) == ({"days": 1}, "w")
    assert (often.every_seconds, often.overlap, often.priority, often.payload) == (
        7200,
        "queue_one",
        1,
        {"days": 2},
    )
    await let_be_due(shared, name="reports-write_report")
    await scheduler(shared).tick()
    assert await runs(shared, "reports-write_report") == [("submitted", None)]


async def test_another_start_changes_only_what_is_different(shared: Database) -> None:
    await declare(shared, pool_of())
    before = await store.read(shared, "often", workspace="default")
    await store.pause(shared, "reports-write_report", workspace="default", actor="ann")
    await declare(shared, pool_of("30 * * * *"))
    after = await store.read(shared, "often", workspace="default")
    assert before.declared_at is not None
    assert after.declared_at is not None
    assert after.declared_at > before.declared_at
    assert replace(after, declared_at=before.declared_at) == before
    report = await store.read(shared, "reports-write_report", workspace="default")
    assert (report.cron, report.paused_by) == ("30 * * * *", "ann")
    await declare(shared, grns.Pool("reports"))
    assert len((await store.list_schedules(shared, workspace="default", limit=10)).rows) == 2


async def test_schedules_of_included_pools_have_the_pool_around(shared: Database) -> None:
    inner, outer = grns.Pool(), grns.Pool("outer")

    @inner.every(60)
    @inner.task
    async def sweep() -> None: ...

    outer.include(inner)
    await declare(shared, outer)
    assert (await store.read(shared, "outer-sweep", workspace="default")).agent_type == "outer"


def broken_cron(pool: grns.Pool) -> None:
    """Declare what names no time."""

    @pool.cron("61 * * * *")
    @pool.task
    async def handler() -> None: ...


def wrong_order(pool: grns.Pool) -> None:
    """Declare it below the handler."""

    @pool.task  # type: ignore[type-var]
    @pool.every(60)
    async def handler() -> None: ...


def worded_interval(pool: grns.Pool) -> None:
    """Declare an interval as a text, as on the command line."""
    wrong: Any = "10m"

    @pool.every(wrong)
    @pool.task
    async def handler() -> None: ...


def wrong_payload(pool: grns.Pool) -> None:
    """Declare a payload that the handler does not take."""

    @pool.every(60, payload={"days": "many"})
    @pool.task
    async def handler(_: Days) -> None: ...


@pytest.mark.parametrize(
    ("declare_it", "words"),
    [
        (broken_cron, "cron"),
        (wrong_order, "above @pool.task"),
        (wrong_payload, "payload.days"),
        (worded_interval, r"timedelta\(minutes=10\)"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_declared(declare_it: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        declare_it(grns.Pool("reports"))


async def test_two_schedules_of_one_name_are_refused(shared: Database) -> None:
    pool = grns.Pool("reports")

    @pool.every(60)
    @pool.every(90)
    @pool.task
    async def handler() -> None: ...

    with pytest.raises(InvalidInputError, match="one name"):
        await declare(shared, pool)


async def test_a_client_creates_and_deletes_schedules(shared: Database, client: Client) -> None:
    schedules = client.schedules
    made = await schedules.put("nightly", "write_report", {"days": 7}, pool="reports", cron="30 2 * * *")
    assert made.next_at.minute == 30
    handler = pool_of().handlers["write_report"]
    often = await schedules.put(
        "often", handler, Days(days=3), every=timedelta(minutes=5), window=60, jitter_seconds=5,
        pause_after_failures=2,
    )  # fmt: skip
    assert (often.agent_type, often.payload, often.window_seconds) == ("reports", {"days": 3}, 60)
    assert (often.jitter_seconds, often.pause_after_failures) == (5, 2)
    assert [one.name for one in (await schedules.list()).rows] == ["nightly", "often"]
    assert (await schedules.pause("often", reason="too often")).pause_reason == "too often"
    assert (await schedules.resume("often")).paused_at is None
    assert (await schedules.runs("often")).rows == []
    span = made.next_at - timedelta(days=3), made.next_at - timedelta(days=1)
    assert (await schedules.backfill("nightly", *span, dry_run=True)).submitted == 2
    assert (await schedules.backfill("nightly", *span)).submitted == 2
    assert [run.source for run in (await schedules.runs("nightly")).rows] == ["backfill"] * 2
    await schedules.delete("often")
    with pytest.raises(NotFoundError):
        await schedules.get("often")
    with pytest.raises(InvalidInputError, match="either cron or every"):
        await schedules.put("none", handler, Days(days=1))
    assert await fetch(shared, "select from grns.schedules where name = 'none'") == []
