"""`grns.AgentClient` against the API on a real port: its loop, its blocks, and what ends them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

import grns
from grns.agent.task import AgentTask
from grns.api.server import ApiServer
from grns.errors import PermissionDeniedError, RateLimitedError, UnauthenticatedError
from grns.maintenance.reaper import reap
from grns.postgres.database import Database
from tests.support.api import OURS, Door, serving
from tests.support.harness import LIMIT_SECONDS, eventually, status_of, submit, submit_many
from tests.support.store import cancel, kinds_of, lapse, row_of

SOON = 2.0


@pytest.fixture
async def url(door: Door) -> AsyncIterator[str]:
    """Where the API is."""
    async with serving(door.context, door.api) as server:
        yield server.url


@pytest.fixture
async def client(url: str, door: Door) -> AsyncIterator[grns.AgentClient]:
    """An HTTP worker whose leases last two seconds unless it renews them."""
    async with grns.AgentClient(
        url,
        key=await door.key("work", "read", workspace="default"),
        task_types=["noop"],
        lease_seconds=SOON,
        name="test",
    ) as found:
        yield found


async def taken(client: grns.AgentClient) -> AgentTask:
    """Claim a task that is there."""
    task = await client.next_task(LIMIT_SECONDS)
    assert task is not None
    return task


async def test_tasks_come_one_after_the_other(client: grns.AgentClient, shared: Database) -> None:
    ids = await submit_many(shared, 5, payload={"n": 1})
    done = []
    async for task in client.tasks():
        async with task:
            assert task.payload == {"n": 1}
            task.result = {"id": task.id}
        done.append(task.id)
        assert task.status == "succeeded"
        if len(done) == len(ids):
            client.stop()
    assert sorted(done) == sorted(ids)
    row = await row_of(shared, ids[0])
    assert json.loads(row["result"]) == {"id": ids[0]}


async def test_what_is_said_by_hand(client: grns.AgentClient, shared: Database) -> None:
    assert await client.next_task(0) is None
    made = await submit(shared, priority=1)
    task = await taken(client)
    assert (task.id, task.attempt, task.priority, task.trace_id) == (made.id, 1, 1, made.trace_id)
    assert not task.is_last_attempt
    assert await client.heartbeat(task, 50, "half") is False
    assert await client.release_task(task) == "queued"
    task = await taken(client)
    assert (
        await client.fail_task(task, "no page", after=timedelta(hours=1), error_class="no_page")
        == "retry_wait"
    )
    row = await row_of(shared, made.id)
    assert json.loads(row["last_error"]) == {"class": "no_page", "message": "no page", "frames": []}
    assert row["next_attempt_at"] - row["updated_at"] == timedelta(hours=1)
    await submit(shared)
    task = await taken(client)
    assert await client.complete_task(task, [1, 2]) == "succeeded"
    assert await client.complete_task(task, [1, 2]) == "succeeded"
    with pytest.raises(grns.LeaseLostError):
        await client.release_task(task)
    assert (await client.queue_status())["waiting"] == {}


def _broken() -> None:
    raise LookupError("no page 17")


def _retry() -> None:
    raise grns.Retry("later", after=3600, error_class="later")


def _fail() -> None:
    raise grns.Fail("never", error_class="never")


@pytest.mark.parametrize(
    ("work", "status", "error_class"),
    [(_broken, "retry_wait", "LookupError"), (_retry, "retry_wait", "later"), (_fail, "failed", "never")],
)
async def test_a_block_that_raises_is_a_failure(
    client: grns.AgentClient, shared: Database, work: Any, status: str, error_class: str
) -> None:
    made = await submit(shared)
    task = await taken(client)
    async with task:
        work()
    assert task.status == status
    row = await row_of(shared, made.id)
    error = json.loads(row["last_error"])
    assert error["class"] == error_class
    assert error["frames"][0].startswith("test_client.py:")
    assert error["frames"][0].endswith(f" in {work.__name__}")


async def test_a_result_that_cannot_be_kept_is_a_failure(client: grns.AgentClient, shared: Database) -> None:
    for result in (object(), {"a": float("nan")}):
        made = await submit(shared)
        task = await taken(client)
        async with task:
            task.result = result
        assert task.status == "failed"
        assert json.loads((await row_of(shared, made.id))["last_error"])["class"] == "bad_result"


async def test_a_block_is_renewed_for_as_long_as_it_takes(client: grns.AgentClient, shared: Database) -> None:
    made = await submit(shared)
    async with await taken(client) as task:
        first = (await row_of(shared, made.id))["lease_until"]

        async def is_renewed() -> bool:
            return bool((await row_of(shared, made.id))["lease_until"] > first + timedelta(seconds=2 * SOON))

        await eventually(is_renewed)
        assert await reap(shared, 10, None) == []
    assert task.status == "succeeded"


async def test_a_block_is_cut_where_its_task_is_cancelled(client: grns.AgentClient, shared: Database) -> None:
    made = await submit(shared)
    async with await taken(client) as task:
        assert await cancel(shared, made.id) == {made.id: "requested"}
        await asyncio.sleep(3600)
    assert (task.ended, task.status, task.lost) == ("cancelled", "cancelled", True)
    assert await status_of(shared, made.id) == "cancelled"


async def test_a_block_that_has_ended_all_the_same_counts(client: grns.AgentClient, shared: Database) -> None:
    made = await submit(shared)
    async with await taken(client) as task:
        await cancel(shared, made.id)
        assert await task.heartbeat() is True
    assert task.status == "succeeded"


async def test_a_block_is_cut_where_its_lease_is_lost_and_writes_nothing(
    client: grns.AgentClient, shared: Database
) -> None:
    made = await submit(shared)
    async with await taken(client) as task:
        await lapse(shared, made.id)
        await reap(shared, 10, None)
        await asyncio.sleep(3600)
    assert (task.ended, task.status) == ("lost", "lost")
    assert (await row_of(shared, made.id))["status"] == "queued"


async def test_what_a_block_raises_when_it_is_cut_is_no_failure(
    client: grns.AgentClient, shared: Database
) -> None:
    made = await submit(shared, max_attempts=1)
    async with await taken(client) as task:
        await cancel(shared, made.id)
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise LookupError("cleaning up") from None
    assert task.status == "cancelled"


async def test_whoever_is_cancelled_gives_its_task_back(client: grns.AgentClient, shared: Database) -> None:
    made = await submit(shared, max_attempts=1)
    task = await taken(client)

    async def work() -> None:
        async with task:
            await asyncio.sleep(3600)

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert task.status == "queued"
    assert (await row_of(shared, made.id))["uncounted_attempts"] == 1


async def test_a_block_that_snoozes_spends_no_attempt(client: grns.AgentClient, shared: Database) -> None:
    made = await submit(shared, max_attempts=1)
    task = await taken(client)
    async with task:
        raise grns.Snooze(60)
    assert task.status == "retry_wait"
    row = await row_of(shared, made.id)
    assert (row["attempt"], row["uncounted_attempts"], row["last_error"]) == (1, 1, None)


async def test_what_was_not_ended_is_given_back(client: grns.AgentClient, shared: Database) -> None:
    made = await submit(shared)
    async with aclosing(client.tasks()) as tasks:
        first = await anext(tasks)
        again = await anext(tasks)
        assert (first.status, again.id, again.attempt) == ("queued", made.id, 2)
    assert again.status == "queued"
    kept = await taken(client)
    client.keep(kept)
    await client.close()
    assert kept.status == "queued"
    assert (await kinds_of(shared, made.id)).count("evt.task.released") == 3


async def test_a_loop_that_rests_is_woken_by_a_nudge(client: grns.AgentClient, shared: Database) -> None:
    async with aclosing(client.tasks(wait_seconds=0, pause_seconds=3600)) as tasks:
        coming = asyncio.ensure_future(anext(tasks))

        async def is_nudged() -> bool:
            client.nudged()
            return coming.done()

        await submit(shared)
        await eventually(is_nudged)
        assert (await coming).task_type == "noop"


async def test_a_loop_that_waits_is_ended(client: grns.AgentClient, shared: Database, door: Door) -> None:
    async def loop() -> list[AgentTask]:
        return [task async for task in client.tasks(wait_seconds=60)]

    looping = asyncio.create_task(loop())

    async def waits() -> bool:
        return bool(door.context.agent_claims.waiting("default"))

    await eventually(waits)
    client.stop()
    assert await asyncio.wait_for(looping, LIMIT_SECONDS) == []

    async def has_gone() -> bool:
        return not door.context.agent_claims.waiting("default")

    await eventually(has_gone)


async def test_a_loop_goes_on_when_the_api_is_back(door: Door, shared: Database) -> None:
    server = ApiServer(door.context, door.api, host="127.0.0.1", port=0)
    url, port = server.url, int(server.url.rpartition(":")[2])
    server._socket.close()
    async with grns.AgentClient(
        url, key=await door.key("work", workspace="default"), task_types=["noop"]
    ) as client:
        with pytest.raises(grns.UnavailableError):
            await client.next_task(0)
        async with aclosing(client.tasks()) as tasks:
            coming = asyncio.ensure_future(anext(tasks))
            server = ApiServer(door.context, door.api, host="127.0.0.1", port=port)
            running = asyncio.create_task(server.run())
            made = await submit(shared)
            task = await asyncio.wait_for(coming, LIMIT_SECONDS)
            assert task.id == made.id
        assert task.status == "queued"
    server.stop()
    await running


async def test_what_the_api_refuses_is_told(door: Door, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = partial(
        grns.AgentClient, url, key=await door.key("work", workspace="default"), task_types=["noop"]
    )
    with pytest.raises(grns.InvalidInputError):
        grns.AgentClient("nowhere", task_types=["noop"])
    with pytest.raises(grns.InvalidInputError):
        agent(task_types="noop")
    async with agent(agent_type="instance") as client:
        with pytest.raises(grns.InvalidInputError):
            await client.next_task(0)
    monkeypatch.setattr(door.context.agent_claims.places, "most_of_one", 0)
    async with agent() as client:
        with pytest.raises(RateLimitedError):
            await client.next_task(0)
    monkeypatch.undo()
    for key, error in (("nonsense", UnauthenticatedError), (await door.key("read"), PermissionDeniedError)):
        async with agent(key=key) as client:
            with pytest.raises(error):
                await client.next_task(0)
    async with agent(key=await door.key("work"), workspace="elsewhere") as client:
        with pytest.raises(grns.NotFoundError):
            await client.next_task(0)
    async with agent(key=await door.key("work"), workspace=OURS) as client:
        assert await client.next_task(0) is None
        with pytest.raises(PermissionDeniedError):
            await client.queue_status()


async def test_no_secret_is_printed(client: grns.AgentClient, shared: Database) -> None:
    await submit(shared)
    task = await taken(client)
    assert task.token not in repr(task)
    assert task.id in repr(task)
