"""Fan-out and join: a handler submits tasks once, and waits for them without a slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import grns
from grns.client.client import Client
from grns.errors import ContendedError, GrnsError, OutcomeUnknownError
from grns.maintenance.retention import delete_tasks
from grns.postgres.database import Database
from tests.support.attempts import Attempts, attempts_of
from tests.support.followers import follow
from tests.support.harness import eventually, submit
from tests.support.store import cancel, fall_due, fetch, is_waiting_for_lock, redrive, row_of, stranger

POOL = grns.Pool("worker", backoff=grns.Backoff(base_seconds=0.001, max_seconds=0.001))
BREAKS: list[str] = []
ASKED: list[Any] = []


def _once(place: str) -> None:
    if place in BREAKS:
        BREAKS.remove(place)
        raise ConnectionError(place)


@POOL.task
async def fetch_page(page: dict[str, Any]) -> int:
    if page.get("is_bad"):
        raise grns.Fail("no such page")
    return int(page["number"]) * 10


@POOL.task("noop")
async def report(payload: dict[str, Any], ctx: grns.Context) -> Any:
    pages = await ctx.fan_out("pages", fetch_page, payload["pages"], priority=1)
    _once("between")
    found = await ctx.join(pages, return_exceptions=payload.get("returns", False))
    ASKED.append(found)
    _once("after")
    more = await ctx.fan_out(
        "more", fetch_page, [{"number": sum(one for one in found if isinstance(one, int))}]
    )
    return {"found": [repr(one) for one in found], "more": await ctx.join(more)}


@POOL.task
async def adds(_payload: dict[str, Any], ctx: grns.Context) -> None:
    ASKED.append(await ctx.results())
    await ctx.join(await ctx.fan_out("pages", fetch_page, [{"number": 1}]))


@pytest.fixture
def attempts(shared: Database, client: Client) -> Iterator[Attempts]:
    BREAKS.clear()
    ASKED.clear()
    with attempts_of(POOL, shared, client) as attempts:
        yield attempts


async def children(database: Database, number: int | None = None) -> list[str]:
    where = "" if number is None else f" and payload ->> 'number' = '{number}'"
    rows = await fetch(
        database, f"select id from grns.tasks where task_type = 'fetch_page'{where} order by id"
    )
    return [row["id"] for row in rows]


def pages(*numbers: int, **more: Any) -> dict[str, Any]:
    return {"pages": [{"number": number} for number in numbers]} | more


async def test_a_handler_waits_for_its_tasks_without_a_slot(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared, payload=pages(1, 2, 3), max_attempts=1)
    assert await attempts.run(task.id) == "waiting"
    row = await row_of(shared, task.id)
    assert (row["waits_for"], row["owner_agent_id"], row["uncounted_attempts"]) == ("tasks", None, 1)
    ids = await children(shared)
    assert len(ids) == 3
    first = await row_of(shared, ids[0])
    assert (first["priority"], first["trace_id"]) == (1, row["trace_id"])
    for task_id in reversed(ids):
        leading = await follow(shared)
        assert (await row_of(shared, task.id))["status"] == "waiting"
        assert await attempts.run(task_id) == "succeeded"
    await follow(shared, leading)
    assert (await row_of(shared, task.id))["status"] == "queued"
    assert await attempts.run(task.id) == "waiting"
    assert ASKED == [[10, 20, 30]]
    assert await attempts.run((await children(shared, 60))[0]) == "succeeded"
    await follow(shared, leading)
    assert await attempts.run(task.id) == "succeeded"
    assert '"more": [600]' in (await row_of(shared, task.id))["result"]
    assert len(await children(shared)) == 4


async def test_what_is_joined_is_no_result_of_a_task_that_is_needed(
    attempts: Attempts, shared: Database
) -> None:
    """Or a handler would find other results when it runs again from its beginning."""
    task = await submit(shared, "adds")
    assert await attempts.run(task.id) == "waiting"
    assert await attempts.run((await children(shared))[0]) == "succeeded"
    await follow(shared)
    assert await attempts.run(task.id) == "succeeded"
    assert ASKED == [{}, {}]


async def test_tasks_that_have_ended_before_are_not_waited_for(attempts: Attempts, shared: Database) -> None:
    BREAKS.append("between")
    task = await submit(shared, payload=pages(1))
    assert await attempts.run(task.id) == "retry_wait"
    assert await attempts.run((await children(shared))[0]) == "succeeded"
    await fall_due(shared, task.id)
    assert await attempts.run(task.id) == "waiting", "for the next round"
    assert ASKED == [[10]]


async def test_a_later_attempt_gets_the_same_tasks(attempts: Attempts, shared: Database) -> None:
    BREAKS.extend(["between", "after"])
    task = await submit(shared, payload=pages(1, 2))
    assert await attempts.run(task.id) == "retry_wait"
    ids = await children(shared)
    await fall_due(shared, task.id)
    assert await attempts.run(task.id) == "waiting"
    for task_id in ids:
        await attempts.run(task_id)
    await follow(shared)
    assert await attempts.run(task.id) == "retry_wait"
    assert await children(shared) == ids


async def test_what_ends_while_the_task_begins_to_wait(attempts: Attempts, shared: Database) -> None:
    """The task ends, and is read by the follower, before its parent has committed that it waits."""
    task = await submit(shared, payload=pages(1))
    asked = attempts.executor.finishes._database

    class Late:
        def __getattr__(self, name: str) -> Any:
            return getattr(asked, name)

        async def run(self, name: str, *arguments: Any) -> Any:
            if name == "suspend" and (ids := await children(shared)):
                attempts.executor.finishes._database = asked
                await attempts.run(ids[0])
                await follow(shared)
            return await asked.run(name, *arguments)

    attempts.executor.finishes._database = Late()  # type: ignore[assignment]
    assert await attempts.run(task.id) == "waiting"
    await follow(shared)
    assert (await row_of(shared, task.id))["status"] == "queued"


async def test_a_task_that_fails_fails_the_join(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared, payload={"pages": [{"number": 1}, {"is_bad": True}]}, max_attempts=1)
    assert await attempts.run(task.id) == "waiting"
    ended = {await attempts.run(task_id): task_id for task_id in await children(shared)}
    assert set(ended) == {"succeeded", "failed"}
    bad = ended["failed"]
    await follow(shared)
    assert await attempts.run(task.id) == "dead"
    assert "TaskFailedError" in (await row_of(shared, task.id))["last_error"]
    await fetch(shared, """update grns.tasks set payload = '{"number": 2}' where payload ? 'is_bad'""")
    assert await redrive(shared, bad) == {bad: "redriven"}
    assert await redrive(shared, task.id) == {task.id: "redriven"}
    assert await attempts.run(task.id) == "waiting", "for the task that runs again"
    assert await attempts.run(bad) == "succeeded"
    await follow(shared)
    assert await attempts.run(task.id) == "waiting"
    assert ASKED == [[10, 20]]


async def test_a_child_that_ends_while_its_parent_begins_to_wait_again(
    attempts: Attempts, shared: Database
) -> None:
    """The need is there from before: nothing turns when the parent begins to wait."""
    task = await submit(shared, payload=pages(1))
    assert await attempts.run(task.id) == "waiting"
    await cancel(shared, task.id)
    await follow(shared)
    await redrive(shared, task.id)
    asked = attempts.executor.finishes._database

    class Late:
        def __getattr__(self, name: str) -> Any:
            return getattr(asked, name)

        async def run(self, name: str, *arguments: Any) -> Any:
            if name == "suspend":
                attempts.executor.finishes._database = asked
                await attempts.run((await children(shared))[0])
                await follow(shared)
            return await asked.run(name, *arguments)

    attempts.executor.finishes._database = Late()  # type: ignore[assignment]
    assert await attempts.run(task.id) == "waiting"
    await follow(shared)
    assert (await row_of(shared, task.id))["status"] == "queued"


async def test_errors_can_be_returned(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared, payload={"pages": [{"number": 1}, {"is_bad": True}], "returns": True})
    await attempts.run(task.id)
    for task_id in await children(shared):
        await attempts.run(task_id)
    await follow(shared)
    await attempts.run(task.id)
    ((number, error),) = ASKED
    assert number == 10
    assert isinstance(error, grns.TaskFailedError)


async def test_an_empty_fan_out(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared, payload=pages())
    assert await attempts.run(task.id) == "waiting"
    assert ASKED == [[]]


async def test_a_fan_out_whose_answer_is_lost_is_made_once(attempts: Attempts, shared: Database) -> None:
    lost: list[str] = []
    real = shared.transaction

    @asynccontextmanager
    async def deaf() -> AsyncIterator[Any]:
        async with real() as connection:
            yield connection
        if not lost:
            lost.append("answer")
            raise OutcomeUnknownError("no answer")

    shared.transaction = deaf  # type: ignore[method-assign]
    task = await submit(shared, payload=pages(1, 2))
    assert await attempts.run(task.id) == "waiting"
    assert lost
    assert len(await children(shared)) == 2


async def test_nothing_is_submitted_by_an_attempt_that_has_lost_its_task(
    client: Client, shared: Database
) -> None:
    async def steal() -> None:
        await fetch(shared, "update grns.tasks set attempt = attempt + 1 where status = 'running'")

    async def fan_out(payload: dict[str, Any], ctx: grns.Context) -> None:
        await steal()
        await ctx.fan_out("pages", fetch_page, payload["pages"])

    pool = grns.Pool("worker")
    pool.task("noop")(fan_out)
    with attempts_of(pool, shared, client) as others:
        task = await submit(shared, payload=pages(1))
        assert await others.run(task.id) == "running"
    assert await children(shared) == []


async def test_the_follower_reads_again_what_it_counted_while_a_task_began_to_wait(
    attempts: Attempts, shared: Database
) -> None:
    task = await submit(shared, payload=pages(1))
    await attempts.run(task.id)
    leading = await follow(shared)
    await attempts.run((await children(shared))[0])
    async with stranger(shared) as connection:
        await connection.execute("update grns.waits set open = open")
        reading = asyncio.create_task(leading.step(2000))
        await eventually(lambda: is_waiting_for_lock(shared))
        await connection.execute("commit")
        with pytest.raises(ContendedError):
            await reading
    await follow(shared)  # after any error the cursor is read again
    assert (await row_of(shared, task.id))["status"] == "queued"


async def test_what_is_no_fan_out_is_refused(shared: Database, client: Client) -> None:
    pool = grns.Pool("worker", non_retryable=(GrnsError,))

    @pool.task("noop")
    async def wrong(payload: dict[str, Any], ctx: grns.Context) -> None:
        if payload["what"] == "many":
            await ctx.fan_out("pages", fetch_page, ({"number": n} for n in range(10_001)))
        elif payload["what"] == "payload":
            await ctx.fan_out("pages", fetch_page, [7])
        else:
            await ctx.join([ctx.client.handle("gr-unknown")])

    with attempts_of(pool, shared, client) as attempts:
        for what, why in (
            ("many", "at most 10,000"),
            ("payload", "payload"),
            ("unknown", "there is no task"),
        ):
            task = await submit(shared, payload={"what": what})
            assert await attempts.run(task.id) == "failed"
            assert why in (await row_of(shared, task.id))["last_error"]
    assert await children(shared) == []


async def test_ten_thousand_tasks_are_fanned_out(client: Client, shared: Database) -> None:
    pool = grns.Pool("worker", non_retryable=(GrnsError,))

    @pool.task("noop")
    async def many(ctx: grns.Context) -> None:
        await ctx.fan_out("pages", fetch_page, ({"number": n} for n in range(10_000)))

    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run((await submit(shared)).id) == "succeeded"
    assert len(await children(shared)) == 10_000


async def test_what_an_unfinished_task_needs_is_kept(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared, payload=pages(1, 2))
    assert await attempts.run(task.id) == "waiting"
    await attempts.run((await children(shared))[0])
    await follow(shared)
    await fetch(
        shared, "update grns.tasks set finished_at = now() - interval '9 days' where finished_at is not null"
    )
    assert (await delete_tasks(shared, "", 100, 86_400.0, 86_400.0)).deleted == 0
