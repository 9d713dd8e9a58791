"""Handles: what a submission returns, and submitting by handler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel

import grns
from grns import sync
from grns.client.client import Client
from grns.client.handle import TaskHandle
from grns.errors import InvalidInputError
from grns.model.outcome import Outcome, Verb
from grns.postgres.database import Database
from grns.worker.finishes import Finish, Finishes
from tests.support.store import claim, fetch


@pytest.fixture
async def client(shared: Database) -> AsyncIterator[Client]:
    """A client that has no broker: everything here works with Postgres alone."""
    async with grns.connect(database_url=shared.url, nats_url="nats://127.0.0.1:1") as client:
        yield client


class Page(BaseModel):
    url: str
    size: int = 1


def shop() -> tuple[grns.Handler[Page, Page], grns.Pool]:
    """Return a handler, and its pool."""
    pool = grns.Pool("worker")

    @pool.task("noop")
    async def fetch_page(page: Page) -> Page:
        return page

    return fetch_page, pool


async def end(database: Database, task_id: str, verb: Verb, **said: Any) -> None:
    """End a task as its worker would."""
    owner = await claim(database, task_id)
    await Finishes(database, batch_limit=1).finish(Finish(owner, Outcome(verb, **said), uuid4()))


async def test_submit_of_a_handler_checks_the_payload_before_it_creates_a_task(
    client: Client, shared: Database
) -> None:
    fetch_page, _ = shop()
    wrong: Any
    for wrong in ({}, {"url": 5}, {"url": "x", "size": "many"}):
        with pytest.raises(InvalidInputError, match="payload"):
            await client.submit(fetch_page, wrong)
    with pytest.raises(InvalidInputError, match="of the pool worker"):
        await client.submit(fetch_page, Page(url="x"), pool="other")  # type: ignore[call-overload]
    with pytest.raises(InvalidInputError, match="pool: say which"):
        await client.submit("noop")  # type: ignore[call-overload]
    assert await fetch(shared, "select from grns.tasks") == []
    handle = await client.submit(fetch_page, Page(url="x"), priority=1)
    task = await handle.get()
    assert (task.task_type, task.agent_type, task.payload) == ("noop", "worker", {"url": "x", "size": 1})
    again = await fetch_page.submit(client, Page(url="y"), delay=timedelta(minutes=1))
    assert (again.created, await again.status()) == (True, "waiting")


async def test_result_of_a_handle_has_the_type_of_the_handler(client: Client, shared: Database) -> None:
    fetch_page, _ = shop()
    handle = await client.submit(fetch_page, Page(url="x"))
    await end(shared, handle.id, Verb.SUCCEED, result='{"url": "x", "size": 7}')
    assert await handle.result(timeout=timedelta(seconds=5)) == Page(url="x", size=7)
    assert await client.handle(handle.id, fetch_page).result(timeout=5) == Page(url="x", size=7)
    assert await client.handle(handle.id).result(timeout=5) == {"url": "x", "size": 7}
    assert [event.kind for event in await handle.events()][-1] == "evt.task.completed"


async def test_result_of_a_task_that_ended_otherwise_raises_how(client: Client, shared: Database) -> None:
    fetch_page, _ = shop()
    failed, dead, cancelled = [
        await client.submit(fetch_page, Page(url="x"), max_attempts=1) for _ in range(3)
    ]
    error = '{"class": "ValueError", "message": "no such page"}'
    await end(shared, failed.id, Verb.FAIL, error=error, error_class="ValueError")
    await end(shared, dead.id, Verb.RETRY, error=error, error_class="ValueError")
    assert await cancelled.cancel(reason="sold out") == "cancelled"
    for handle, kind in (
        (failed, grns.TaskFailedError),
        (dead, grns.TaskDeadError),
        (cancelled, grns.TaskCancelledError),
    ):
        with pytest.raises(kind) as raised:
            await handle.result(timeout=5)
        assert raised.value.task.id == handle.id
    assert len({failed, dead, cancelled, failed}) == 3
    with pytest.raises(grns.TaskEndedError, match="is dead: ValueError: no such page"):
        await dead.result(timeout=5)
    with pytest.raises(grns.TaskCancelledError, match=r"is cancelled: sold out$"):
        await cancelled.result(timeout=5)
    with pytest.raises(TypeError, match=r"write handle\.result\(timeout=…\)"):
        await dead.get(timeout=5)  # type: ignore[arg-type]
    with pytest.raises(TimeoutError, match="has not ended within 0 s: it is queued"):
        await (await client.submit(fetch_page, Page(url="x"))).result(timeout=0)
    assert await dead.redrive() == "redriven"
    assert await dead.status() == "queued"


async def test_submit_many_takes_handlers_and_returns_handles(client: Client, shared: Database) -> None:
    fetch_page, _ = shop()
    handles = await client.submit_many({"task": fetch_page, "payload": Page(url=str(n))} for n in range(3))
    for handle in handles:
        assert isinstance(handle, TaskHandle)
        await end(shared, handle.id, Verb.SUCCEED, result='{"url": "z"}')
        assert await handle.result(timeout=5) == Page(url="z")
    with pytest.raises(InvalidInputError, match="call it 'pool' here"):
        await client.submit_many([{"task": "noop", "pool": "worker", "agent_type": "worker"}])
    with pytest.raises(InvalidInputError, match="payload"):
        await client.submit_many([{"task": fetch_page, "payload": Page(url="x")}, {"task": fetch_page}])


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("eta", "pass run_at="),
        ("countdown", "pass delay="),
        ("queue", "pass pool="),
        ("order_id", "fields of the payload go into one object"),
    ],
)
async def test_options_of_other_frameworks_lead_to_ours(client: Client, option: str, words: str) -> None:
    fetch_page, _ = shop()
    untyped: Any = client
    with pytest.raises(InvalidInputError, match=f"^{option}: .*{words}"):
        await untyped.submit(fetch_page, **{option: 1})


@pytest.mark.parametrize(
    ("name", "words"),
    [("state", "handle.status()"), ("ready", "handle.get().is_terminal"), ("revoke", "handle.cancel()")],
)
async def test_attributes_of_other_handles_lead_to_ours(client: Client, name: str, words: str) -> None:
    handles: list[Any] = [client.handle("gr-1"), sync.Client(nats_url="nats://127.0.0.1:1").handle("gr-1")]
    for handle in handles:
        with pytest.raises(AttributeError) as raised:
            getattr(handle, name)
        assert str(raised.value) == f"a handle has no {name!r}: write {words}"
        assert not hasattr(handle, "colour")


async def test_what_is_no_handler_is_told_what_to_do(client: Client) -> None:
    untyped: Any = client
    with pytest.raises(InvalidInputError, match=r"task: shop is not a handler: decorate it with @pool.task"):
        await untyped.submit(shop)
    with pytest.raises(
        InvalidInputError, match=r"names have no dots: write 'charge_card', not 'shop.charge_card'"
    ):
        await untyped.submit("shop.charge_card", pool="worker")


async def test_a_payload_that_is_no_object_is_told_what_to_pass(client: Client) -> None:
    fetch_page, _ = shop()
    untyped: Any = client
    with pytest.raises(InvalidInputError, match=r'pass one object, such as \{"number": 1\}, not str'):
        await untyped.submit(fetch_page, "https://example.org")
    with pytest.raises(InvalidInputError, match=r'payload: pass one object, such as \{"number": 1\}'):
        await untyped.submit("count", 100, pool="worker")


@pytest.mark.parametrize(("seconds", "status"), [(-60, "queued"), (3600, "waiting")])
async def test_run_at_is_when_the_task_is_queued(
    client: Client, shared: Database, seconds: int, status: str
) -> None:
    run_at = datetime.now(UTC) + timedelta(seconds=seconds)
    task = await (await client.submit("noop", pool="worker", run_at=run_at)).get()
    assert task.status == status
    assert task.next_attempt_at == (run_at if seconds > 0 else None)
    (row,) = await fetch(shared, "select grns.submit_task('noop', run_at => $1) as id", run_at)
    by_sql = await client.get(row["id"])
    assert (by_sql.status, by_sql.next_attempt_at) == (status, task.next_attempt_at)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"run_at": datetime(2026, 1, 1)}, "its time zone"),  # noqa: DTZ001
        ({"run_at": 5}, "RFC 3339"),
        ({"run_at": datetime(2130, 1, 1, tzinfo=UTC)}, "at most 366 days"),
        ({"run_at": datetime(2026, 11, 26, tzinfo=UTC), "delay": 5}, "either a time or a delay"),
        ({"delay": "soon"}, "delay: "),
        ({"delay": timedelta(days=367)}, "delay: "),
    ],
    ids=str,
)
async def test_times_that_cannot_be_are_refused(client: Client, options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        await client.submit("noop", pool="worker", **options)
