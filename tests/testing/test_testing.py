"""grns.testing: handlers and what submits them, without servers."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

import grns
from grns import testing
from grns.errors import ConflictError, InvalidInputError, WaitTimeoutError
from grns.postgres.database import Database
from tests.support.store import fetch


class Page(BaseModel):
    url: str
    size: int = 0


@asynccontextmanager
async def lifespan(pool: grns.Pool) -> AsyncIterator[dict[str, int]]:
    yield {"size": 7}


def get_double(ctx: grns.Context) -> int:
    """Depend on the context."""
    return 2 * int(ctx.state["size"])


pool = grns.Pool("shop", lifespan=lifespan, backoff=grns.Backoff(base_seconds=3600))


@pool.task
async def measure(page: Page, ctx: grns.Context, double: Annotated[int, grns.Depends(get_double)]) -> Page:
    return Page(url=page.url, size=ctx.state["size"] + double)


@pool.task(max_attempts=2)
def flaky(ctx: grns.Context) -> int:
    if ctx.attempt == 1:
        raise grns.Retry("not yet", after=60)
    return ctx.attempt


@pool.task
async def hopeless() -> None:
    raise ValueError("never")


@pool.task
async def pay(order: dict[str, Any], ctx: grns.Context) -> None:
    async with ctx.transaction() as tx:
        await tx.connection.execute("create table if not exists tills (id int)")
        await tx.connection.execute("insert into tills values ($1)", order["id"])
        tx.complete({"paid": order["id"]})


@pool.task
async def careless(ctx: grns.Context) -> str:
    async with ctx.transaction():
        pass
    return "ignored"


@pool.task
def pay_in_a_thread(ctx: grns.Context) -> None:
    with ctx.transaction():  # type: ignore[attr-defined]
        pass


# ---------------------------------------------------------------- context


async def test_handler_is_called_with_a_context_of_the_test() -> None:
    ctx = testing.context({"a": 1}, attempt=3, state={"size": 1})
    assert (await measure(Page(url="x"), ctx, 5)) == Page(url="x", size=6)
    assert (ctx.payload, ctx.attempt, ctx.is_last_attempt, ctx.should_stop) == ({"a": 1}, 3, True, False)
    ctx.stop("timeout")
    assert (ctx.should_stop, ctx.stop_reason) == (True, "timeout")
    ctx.log.info("nothing breaks")


# ---------------------------------------------------------------- run


async def test_run_validates_resolves_and_returns_the_typed_result() -> None:
    assert await testing.run(measure, Page(url="x")) == Page(url="x", size=21)
    assert await testing.run(measure, Page(url="x"), state={"size": 1}) == Page(url="x", size=3)
    wrong: Any = {"size": 1}
    with pytest.raises(InvalidInputError, match="payload"):
        await testing.run(measure, wrong)


async def test_run_raises_what_the_handler_raises() -> None:
    with pytest.raises(grns.Retry, match="not yet"):
        await testing.run(flaky)
    assert await testing.run(flaky, attempt=2) == 2
    with pytest.raises(ValueError, match="never"):
        await testing.run(hopeless)


async def test_run_uses_the_connection_of_the_test(shared: Database) -> None:
    with pytest.raises(InvalidInputError, match="pass connection="):
        await testing.run(pay, {"id": 1})
    async with shared.connection() as connection:
        assert await testing.run(pay, {"id": 1}, connection=connection) == {"paid": 1}
        with pytest.raises(InvalidInputError, match=r"tx\.complete"):
            await testing.run(careless, connection=connection)
    assert [row["id"] for row in await fetch(shared, "select id from tills")] == [1]


async def test_transaction_of_a_plain_handler_says_what_to_do_instead() -> None:
    with pytest.raises(InvalidInputError, match="`async with`"):
        await testing.run(pay_in_a_thread)


async def test_run_cuts_a_handler_short_at_its_timeout() -> None:
    @pool.task("slow", timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await testing.run(slow)


# ---------------------------------------------------------------- eager


async def place_order(client: grns.Client, url: str) -> str:
    """Stand for code of an application."""
    handle = await client.submit(measure, Page(url=url), priority=1, idempotency_key=url)
    return handle.id


async def test_eager_client_runs_tasks_in_place() -> None:
    with testing.eager() as client:
        task_id = await place_order(client, "x")
        assert await client.handle(task_id, measure).result() == Page(url="x", size=21)
        assert await place_order(client, "x") == task_id, "the same key is the same task"
        with pytest.raises(ConflictError):
            await client.submit(measure, Page(url="other"), idempotency_key="x")
        with pytest.raises(InvalidInputError, match="payload"):
            await client.submit("measure", "text", pool="shop")
    found = client.assert_submitted(measure, Page(url="x"), priority=1)
    assert (found.id, found.status) == (task_id, "succeeded")
    with pytest.raises(AssertionError, match="measure {'url': 'x', 'size': 0}"):  # noqa: RUF043
        client.assert_submitted(measure, Page(url="y"))


async def test_eager_client_retries_in_place_until_the_attempts_are_used_up() -> None:
    with testing.eager(pool) as client:
        handle = await client.submit("flaky", pool="shop")
        assert await handle.result() == 2
        dead = await client.submit(hopeless)
        with pytest.raises(grns.TaskDeadError, match="ValueError: never"):
            await dead.result()
        assert (await dead.get()).attempt == 3
        assert await dead.redrive() == "redriven"
        assert (await dead.get()).attempt == 6


async def test_eager_client_leaves_what_is_delayed_or_unknown() -> None:
    with testing.eager() as client:
        later = await client.submit(measure, Page(url="x"), delay=timedelta(hours=1))
        unknown = await client.submit("unknown", pool="other")
        with pytest.raises(WaitTimeoutError, match="is waiting"):
            await later.result()
        await client.run_waiting()
        assert (await later.status(), await unknown.status()) == ("succeeded", "queued")
        assert await unknown.cancel() == "cancelled"
        with pytest.raises(InvalidInputError, match="needs servers"):
            await unknown.events()


def test_eager_client_of_synchronous_code() -> None:
    with testing.eager_sync() as client:
        handle = client.submit(measure, Page(url="x"), connection="of Django")
        assert handle.result(timeout=1) == Page(url="x", size=21)
        later, other = client.submit_many(
            [
                {"task": measure, "payload": Page(url="y"), "delay": 60},
                {"task": measure, "payload": Page(url="z")},
            ]
        )
        assert client.get(later.id).status == "waiting"
        client.run_waiting()
        assert (client.get(later.id).status, other.status()) == ("succeeded", "succeeded")
        client.assert_submitted(measure, Page(url="z"))


async def test_eager_client_runs_what_was_snoozed_when_it_is_asked() -> None:
    turns: list[int] = []
    other = grns.Pool("other")

    @other.task
    async def turn(ctx: grns.Context) -> None:
        turns.append(ctx.attempt)
        if len(turns) < 3:
            raise grns.Snooze(60)

    with testing.eager() as client:
        handle = await client.submit(turn)
        assert await handle.status() == "retry_wait"
        await client.run_waiting()
        await client.run_waiting()
        assert (await handle.status(), turns) == ("succeeded", [1, 2, 3])
        assert (await handle.get()).uncounted_attempts == 2


async def test_eager_client_that_only_records_runs_nothing() -> None:
    with testing.eager(pool, runs=False) as client:
        await client.submit_many([{"task": hopeless}, {"task": "flaky", "pool": "shop"}])
    assert [task.status for task in client.tasks.values()] == ["queued", "queued"]
    client.assert_submitted("flaky")


def test_plain_handlers_of_the_eager_client_run_in_the_calling_thread() -> None:
    threads, local = list[int](), grns.Pool("local")

    @local.task
    def inner() -> None:
        threads.append(threading.get_ident())

    with testing.eager_sync() as client:

        @local.task
        def outer() -> None:
            threads.append(threading.get_ident())
            client.submit(inner)

        handle = client.submit(outer)
    assert handle.status() is grns.TaskStatus.SUCCEEDED
    assert threads == [threading.get_ident()] * 2
