"""Review."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import grns
from grns.access.isolation import as_tenant
from grns.client.client import Client
from grns.errors import *
from grns.model.outcome import Verb
from grns.operations.model import State
from grns.postgres.database import Database
from grns.tasks import workflows as store
from tests.support.followers import begin_here, follow
from tests.support.operations import step
from tests.support.store import claim, fetch, finish, log_of, redrive, row_of
from tests.workflows.test_open_workflows import begun, counts, end, last_task, opened, LAST, ONE


async def drain(shared):
    while (moved := await step(shared)) is not None and moved.state is not State.DONE:
        await follow(shared)
    await follow(shared)


async def test_cancel_when_all_so_far_succeeded(shared: Database, client: Client) -> None:
    run = await opened(client, on_success=LAST)
    one = await run.submit("noop", pool="worker")
    await end(shared, one.id)
    await follow(shared)
    await run.cancel()
    await drain(shared)
    print("STATE", await counts(run), (await last_task(shared))["status"])
    state = await run.get()
    assert (state.status, (await last_task(shared))["status"]) == ("cancelled", "cancelled")


async def test_cancel_empty(shared: Database, client: Client) -> None:
    run = await opened(client, on_success=LAST)
    await run.cancel()
    await drain(shared)
    state = await run.get()
    assert (state.status, (await last_task(shared))["status"]) == ("cancelled", "cancelled")


async def test_cycle_by_key(shared: Database, client: Client) -> None:
    run = await opened(client)
    behind = await client.submit("noop", {"n": 1}, pool="worker", needs=[run.id], idempotency_key="behind")
    with pytest.raises(GrnsError):
        await run.submit("noop", {"n": 1}, pool="worker", idempotency_key="behind")
    await run.seal()
    await follow(shared)
    print("STATE", await counts(run), (await row_of(shared, behind.id))["status"])


async def test_cycle_of_two_workflows_uncounted(shared: Database, client: Client) -> None:
    a, b = await opened(client), await opened(client)
    await follow(shared)
    await a.submit("noop", pool="worker", needs=[b.id])
    with pytest.raises(GrnsError):
        await b.submit("noop", pool="worker", needs=[a.id])
    await a.seal()
    await b.seal()
    await follow(shared)
    print("STATE", await counts(a), await counts(b))


async def test_cycle_of_two_workflows_counted(shared: Database, client: Client) -> None:
    a, b = await opened(client), await opened(client)
    await follow(shared)
    await a.submit("noop", pool="worker", needs=[b.id])
    await follow(shared)
    with pytest.raises(GrnsError):
        await b.submit("noop", pool="worker", needs=[a.id])


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "redrive"])
async def test_tenant_changes(shared: Database, client: Client, verb: str) -> None:
    run = await opened(client)
    async with as_tenant(shared, "default") as session:
        await store.change(session, run.id, verb, workspace="default", actor="me", reason=None)


async def test_tenant_seals(shared: Database, client: Client) -> None:
    run = await opened(client)
    async with as_tenant(shared, "default") as session:
        await session.run("seal_workflow", run.id, "default", "me")


async def test_tenant_extends(shared: Database, client: Client) -> None:
    run = await opened(client)
    async with as_tenant(shared, "default") as session:
        await session.run("submit_graph", '[{"task_type": "noop"}]', "default", "me", '{"id": "%s", "extends": true}' % run.id)


async def test_task_added_to_paused(shared: Database, client: Client) -> None:
    run = await opened(client)
    await run.pause()
    one = await run.submit("noop", pool="worker")
    await follow(shared)
    assert (await row_of(shared, one.id))["status"] == "waiting"


async def test_last_task_by_key(shared: Database, client: Client) -> None:
    flow = client.workflow("import", is_open=True)
    flow.on_end("noop", {"is_last": True}, pool="worker", idempotency_key="last")
    run = await flow.submit()
    with pytest.raises(GrnsError):
        await run.submit("noop", {"is_last": True}, pool="worker", idempotency_key="last")
