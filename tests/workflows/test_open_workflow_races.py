"""Open workflows at their edges: cycles, cancels, seals among many transactions, keys of known tasks."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import asyncpg
import pytest

import grns
from grns.client.client import Client
from grns.errors import GrnsError, InvalidInputError
from grns.model.outcome import Verb
from grns.operations.model import State
from grns.postgres.database import Database
from tests.support.followers import begin_here, follow
from tests.support.operations import run_queued, step
from tests.support.store import fetch
from tests.workflows.test_open_workflows import LAST, ONE, counts, end, last_task, opened


@pytest.fixture(autouse=True)
async def begun(shared: Database) -> None:
    """Let what is followed here begin here."""
    await begin_here(shared)


@pytest.mark.parametrize("has_task", [True, False])
async def test_workflow_that_is_cancelled_while_it_is_open_has_not_succeeded(
    shared: Database, client: Client, has_task: bool
) -> None:
    run = await opened(client, on_success=LAST)
    if has_task:
        await end(shared, (await run.submit("noop", pool="worker")).id)
        await follow(shared)
    await run.cancel()
    while (moved := await step(shared)) is not None and moved.state is not State.DONE:
        await follow(shared)
    await follow(shared)
    assert (await run.get()).status == "cancelled"
    assert (await last_task(shared))["status"] == "cancelled"


async def test_known_task_that_needs_the_workflow_is_refused(shared: Database, client: Client) -> None:
    flow = client.workflow("import", is_open=True)
    flow.on_end("noop", {"is_last": True}, pool="worker", idempotency_key="last")
    run = await flow.submit()
    await client.submit("noop", {"n": 1}, pool="worker", needs=[run.id], idempotency_key="behind")
    for key, payload in (("last", {"is_last": True}), ("behind", {"n": 1})):
        with pytest.raises(InvalidInputError) as raised:
            await run.submit("noop", payload, pool="worker", idempotency_key=key)
        assert (raised.value.code, "DETAIL" in str(raised.value)) == ("dependency_cycle", False)


@pytest.mark.parametrize("is_counted", [True, False])
async def test_two_workflows_cannot_need_each_other(
    shared: Database, client: Client, is_counted: bool
) -> None:
    one, other = await opened(client), await opened(client)
    await one.submit("noop", pool="worker", needs=[other.id])
    if is_counted:
        await follow(shared)
    with pytest.raises(InvalidInputError, match="nor itself"):
        await other.submit("noop", pool="worker", needs=[one.id])


async def test_two_transactions_cannot_let_workflows_need_each_other(
    shared: Database, client: Client
) -> None:
    one, other = await opened(client), await opened(client)
    async with shared.transaction() as connection:
        await one.submit("noop", pool="worker", needs=[other.id], connection=connection)
        second = asyncio.ensure_future(other.submit("noop", pool="worker", needs=[one.id]))
        await asyncio.sleep(0.2)
        assert not second.done()
    with pytest.raises(GrnsError, match="nor itself"):
        await second


async def test_seal_is_counted_after_tasks_of_any_id(shared: Database, client: Client) -> None:
    run = await opened(client, on_success=LAST)
    tasks = json.dumps([{"task_type": "noop", "id": f"zz-{number:05}"} for number in range(2200)])
    extends = json.dumps({"id": run.id, "extends": True})
    await shared.run("submit_graph", tasks, "default", None, extends)
    done = 0
    while done < 2100:
        done += len(await run_queued(shared, Verb.SUCCEED, min(500, 2100 - done)))
    await run.seal()
    await follow(shared)
    assert await counts(run) == ("running", 2200, 100, 2100, 0)
    assert (await last_task(shared))["status"] == "waiting"


async def test_known_task_is_kept_while_it_is_added(shared: Database, client: Client) -> None:
    run = await opened(client)
    old = await client.submit("noop", pool="worker", idempotency_key="old one")
    await end(shared, old.id)
    await fetch(
        shared, "update grns.tasks set finished_at = now() - interval '400 days' where id = $1", old.id
    )
    async with shared.transaction() as connection:
        added = await run.submit("noop", pool="worker", idempotency_key="old one", connection=connection)
        await shared.run("delete_tasks", "", 10_000_000, 86400.0, 86400.0, None, False)
    await run.seal()
    await follow(shared)
    assert (added.id, await counts(run)) == (old.id, ("succeeded", 1, 0, 1, 0))


async def test_task_that_waits_for_its_open_workflow_is_in_a_cycle(shared: Database, client: Client) -> None:
    run = await opened(client)
    task = await run.submit("noop", pool="worker")
    last = await last_task(shared)
    for _ in range(2):
        (row,) = await fetch(shared, "select grns.waits_for_task($1, $2) as waits", last["id"], task.id)
        assert row["waits"]
        await follow(shared)


@pytest.mark.parametrize("verb", ["seal", "pause", "cancel"])
async def test_transactions_that_overlap_hold_up_no_change_for_ever(
    shared: Database, client: Client, verb: str
) -> None:
    run = await opened(client)
    is_over = False

    async def add(number: int) -> None:
        await asyncio.sleep(number * 0.03)
        with suppress(asyncpg.PostgresError):
            while not is_over:
                async with shared.transaction() as connection:
                    await run.submit("noop", pool="worker", connection=connection)
                    await asyncio.sleep(0.1)

    adding = [asyncio.ensure_future(add(number)) for number in range(4)]
    await asyncio.sleep(0.2)
    async with asyncio.timeout(4):
        await getattr(run, verb)()
    is_over = True
    await asyncio.gather(*adding)


async def test_redrive_of_an_open_workflow_lets_failures_stop_it_later(
    shared: Database, client: Client
) -> None:
    flow = client.workflow("import", is_open=True, fail_after=grns.Failures(count=2, then="pause"))
    run = await flow.submit()
    for one in await run.submit_many([ONE] * 2):
        await end(shared, one.id, Verb.FAIL)
        await run.redrive()
        await follow(shared)
    assert (await run.get()).paused_at is not None


async def test_failures_stop_no_workflow_while_a_transaction_adds_to_it(
    shared: Database, client: Client
) -> None:
    run = await client.workflow("import", is_open=True, fail_after=grns.Failures(count=1)).submit()
    first = await run.submit("noop", pool="worker")
    await end(shared, first.id, Verb.FAIL)
    async with shared.transaction() as connection:
        await run.submit("noop", pool="worker", connection=connection)
        await follow(shared)
        assert (await run.get()).sealed_at is None
    await follow(shared)
    assert (await run.get()).sealed_at is not None
    await step(shared)
    await follow(shared)
    assert await counts(run) == ("cancelled", 2, 0, 0, 2)
