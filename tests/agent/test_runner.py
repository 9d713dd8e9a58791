"""Pools and plain functions that are run over HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

import grns
from grns.client.client import Client
from grns.postgres.database import Database
from tests.agent.test_client import url as url
from tests.support.api import Door
from tests.support.harness import LIMIT_SECONDS, eventually, status_of, submit, submit_many
from tests.support.store import fetch, row_of

LOG: list[str] = []


@asynccontextmanager
async def lifespan(_pool: grns.Pool) -> AsyncIterator[str]:
    """Say when it begins and ends."""
    LOG.append("begins")
    yield "state"
    LOG.append("ends")


async def get_name(ctx: grns.Context) -> AsyncIterator[str]:
    """Provide the id of the task, and say when it is not needed any more."""
    yield ctx.id
    LOG.append("provided")


class Order(BaseModel):
    """What to do."""

    n: int


pool = grns.Pool("worker", lifespan=lifespan, non_retryable=(ZeroDivisionError,))


@pool.task
async def double(
    order: Order, ctx: grns.Context, name: Annotated[str, grns.Depends(get_name)]
) -> dict[str, Any]:
    return {"n": 2 * order.n, "state": ctx.state, "is_own": name == ctx.id, "attempt": ctx.attempt}


@pool.task
def thread(order: Order) -> Order:
    return Order(n=order.n + 1)


@pool.task(backoff=grns.Backoff(base_seconds=3600))
async def breaks(_order: Order) -> None:
    raise LookupError("no page 17")


@pool.task
async def divides(_order: Order) -> None:
    raise ZeroDivisionError


@pool.task(timeout=0.05)
async def hangs(_order: Order) -> None:
    await asyncio.sleep(60)


@pool.task(timeout=0.05)
def hangs_in_a_thread(_order: Order, _name: Annotated[str, grns.Depends(get_name)]) -> None:
    """Use what it was given after its time-out."""
    time.sleep(0.3)
    LOG.append("used")


@pool.task
async def reports(_order: Order, ctx: grns.Context) -> list[int]:
    ctx.progress(10, "begins", remaining=timedelta(minutes=1))
    ctx.checkpoint({"page": 1})
    ctx.progress(90, "ends")
    return [await ctx.step("one", one)]


async def one() -> int:
    """Return one."""
    return 1


@asynccontextmanager
async def running(url: str, door: Door, handlers: Any, **options: Any) -> AsyncIterator[grns.AgentClient]:
    """Run handlers in the background."""
    names = handlers.handlers if isinstance(handlers, grns.Pool) else handlers
    key = await door.key("work", "read", workspace="default")
    async with grns.AgentClient(url, key=key, task_types=names, lease_seconds=5) as client:
        work = asyncio.create_task(client.run(handlers, **options))
        yield client
        client.stop()
        await asyncio.wait_for(work, LIMIT_SECONDS)


async def until(database: Database, task_id: str, *statuses: str) -> dict[str, Any]:
    """Wait until a task has one of these statuses, and return its row."""

    async def is_there() -> bool:
        return await status_of(database, task_id) in statuses

    await eventually(is_there)
    return await row_of(database, task_id)


@pool.task
async def measure(document: dict[str, Any], ctx: grns.Context) -> dict[str, Any]:
    return {name: len(text) for name, text in document.items()} | {"seen": len(ctx.payload["b"])}


async def test_a_long_payload_comes_whole(url: str, door: Door, client: Client) -> None:
    handle = await client.submit("measure", {"a": "x" * 200_000, "b": "y" * 200_000, "c": ""}, pool="worker")
    async with running(url, door, pool):
        result = await handle.result(timeout=LIMIT_SECONDS)
    assert result == {"a": 200_000, "b": 200_000, "c": 0, "seen": 200_000}


async def test_a_pool_is_run_as_by_a_worker(url: str, door: Door, shared: Database) -> None:
    LOG.clear()
    made = {
        name: (await submit(shared, task_type=name, payload={"n": 20})).id
        for name in ("double", "thread", "breaks", "divides", "hangs", "reports")
    }
    wrong = (await submit(shared, task_type="double", payload={"n": "x"})).id
    async with running(url, door, pool, concurrency=3):
        row = await until(shared, made["double"], "succeeded")
        assert json.loads(row["result"]) == {"n": 40, "state": "state", "is_own": True, "attempt": 1}
        row = await until(shared, made["thread"], "succeeded")
        assert json.loads(row["result"]) == {"n": 21}
        row = await until(shared, made["breaks"], "retry_wait")
        error = json.loads(row["last_error"])
        assert (error["class"], error["message"]) == ("LookupError", "no page 17")
        assert any("test_runner" in frame and "breaks" in frame for frame in error["frames"])
        assert row["next_attempt_at"] - row["updated_at"] > timedelta(minutes=10)
        row = await until(shared, made["divides"], "failed")
        assert json.loads(row["last_error"])["class"] == "ZeroDivisionError"
        row = await until(shared, made["hangs"], "retry_wait")
        assert json.loads(row["last_error"])["message"] == "no end after 0.05 s"
        row = await until(shared, wrong, "failed")
        assert json.loads(row["last_error"])["class"] == "bad_payload"
        row = await until(shared, made["reports"], "succeeded")
        assert json.loads(row["result"]) == [1]
    assert LOG == ["begins", "provided", "ends"]


async def test_what_is_reported_is_there_before_the_outcome(url: str, door: Door, shared: Database) -> None:
    made = await submit(shared, task_type="reports", payload={"n": 1})
    async with running(url, door, pool):
        await until(shared, made.id, "succeeded")
    (row,) = await fetch(shared, "select * from grns.progress where task_id = $1", made.id)
    assert (row["percent"], row["step"], json.loads(row["checkpoint"])) == (90, "ends", {"page": 1})


async def test_what_a_thread_uses_is_there_until_it_has_ended(url: str, door: Door, shared: Database) -> None:
    LOG.clear()
    async with running(url, door, pool):
        made = await submit(shared, task_type="hangs_in_a_thread", payload={"n": 1}, max_attempts=1)
        await until(shared, made.id, "dead", "retry_wait")

        async def is_closed() -> bool:
            return "provided" in LOG

        await eventually(is_closed)
    assert LOG == ["begins", "used", "provided", "ends"]


async def test_plain_functions_are_run(url: str, door: Door, shared: Database) -> None:
    async def with_task(payload: dict[str, Any], task: grns.AgentTask) -> dict[str, Any]:
        return {"n": payload["n"], "id": task.id}

    def alone(payload: dict[str, Any]) -> int:
        return int(payload["n"]) + 1

    def none() -> None: ...

    made = {name: (await submit(shared, task_type=name, payload={"n": 1})).id for name in ("a", "b", "c")}
    async with running(url, door, {"a": with_task, "b": alone, "c": none}, concurrency=2):
        results = {
            name: json.loads((await until(shared, id_, "succeeded"))["result"]) for name, id_ in made.items()
        }
    assert results == {"a": {"n": 1, "id": made["a"]}, "b": 2, "c": None}


async def test_so_many_run_at_a_time(url: str, door: Door, shared: Database) -> None:
    here, most = 0, 0

    async def work(_payload: dict[str, Any]) -> None:
        nonlocal here, most
        here += 1
        most = max(most, here)
        await asyncio.sleep(0.3)
        here -= 1

    ids = await submit_many(shared, 6)
    async with running(url, door, {"noop": work}, concurrency=3):
        for id_ in ids:
            await until(shared, id_, "succeeded")
    assert most == 3


async def test_a_handler_that_is_ended_gives_its_task_back(url: str, door: Door, shared: Database) -> None:
    started = asyncio.Event()

    async def work(_payload: dict[str, Any]) -> None:
        started.set()
        await asyncio.sleep(60)

    made = await submit(shared)
    key = await door.key("work", workspace="default")
    async with grns.AgentClient(url, key=key, task_types=["noop"]) as client:
        running = asyncio.create_task(client.run({"noop": work}))
        await asyncio.wait_for(started.wait(), LIMIT_SECONDS)
        client.obey("stop")
        await asyncio.wait_for(running, LIMIT_SECONDS)
    row = await row_of(shared, made.id)
    assert (row["status"], row["uncounted_attempts"]) == ("queued", 1)


@pytest.mark.parametrize(
    "told",
    [{"remaining": "soon"}, {"checkpoint": object()}, {"checkpoint": "\x00"}],
    ids=["remaining", "object", "nul"],
)
async def test_what_cannot_be_reported(url: str, door: Door, shared: Database, told: dict[str, Any]) -> None:
    found: list[str] = []

    async def work(_payload: dict[str, Any], task: grns.AgentTask) -> None:
        with pytest.raises(grns.InvalidInputError):
            task.progress(**told) if "remaining" in told else task.checkpoint(told["checkpoint"])
        found.append(task.id)

    made = await submit(shared)
    async with running(url, door, {"noop": work}):
        await until(shared, made.id, "succeeded")
    assert found == [made.id]
