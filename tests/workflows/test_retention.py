"""Workflows go as a whole: the tasks of one are kept until it goes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import grns
from grns.client.client import Client
from grns.client.workflow import WorkflowHandle
from grns.maintenance.retention import delete_tasks
from grns.model.outcome import Verb
from grns.postgres.database import Database
from tests.support.followers import begin_here, follow
from tests.support.store import claim, deleted, fetch, finish

_DAY = 86_400.0


@pytest.fixture(autouse=True)
async def begun(shared: Database) -> None:
    """Let what is followed here begin here."""
    await begin_here(shared)


@pytest.fixture
async def client(shared: Database) -> AsyncIterator[Client]:
    """A client that has no broker."""
    async with grns.connect(database_url=shared.url, nats_url="nats://127.0.0.1:1") as client:
        yield client


async def ended(database: Database, client: Client, verb: Verb) -> WorkflowHandle:
    """Return a workflow of two tasks, one after the other, that ended ten days ago."""
    flow = client.workflow("flow")
    first = flow.task("noop", pool="worker", name="first")
    second = flow.task("noop", pool="worker", name="second", needs=[first])
    run = await flow.submit()
    await finish(database, await claim(database, first.id))
    await follow(database)
    await finish(database, await claim(database, second.id), verb)
    await follow(database)
    await fetch(database, "update grns.tasks set finished_at = now() - interval '10 days'")
    await fetch(database, "update grns.workflows set ended_at = now() - interval '10 days'")
    return run


async def walk(database: Database) -> int:
    """Delete tasks that ended five days ago, or failed twenty; return how many."""
    return (await delete_tasks(database, "", 100, 5 * _DAY, 20 * _DAY)).deleted


async def left(database: Database) -> int:
    """Return how many rows there are of workflows and what they and tasks need."""
    (row,) = await fetch(
        database,
        "select (select count(*) from grns.workflows) + (select count(*) from grns.needs)"
        " + (select count(*) from grns.waits) as left",
    )
    return int(row["left"])


async def test_a_workflow_goes_before_its_tasks_and_leaves_nothing(shared: Database, client: Client) -> None:
    await ended(shared, client, Verb.SUCCEED)
    assert await walk(shared) == 0, "the workflow is still there"
    assert await deleted(shared, "delete_failed_workflows", 10, 5 * _DAY) == 0
    assert await deleted(shared, "delete_workflows", 10, 15 * _DAY) == 0
    assert await deleted(shared, "delete_workflows", 10, 5 * _DAY) == 1
    assert await walk(shared) == 2
    assert await left(shared) == 0


async def test_what_succeeded_in_a_failed_workflow_is_kept_for_its_redrive(
    shared: Database, client: Client
) -> None:
    await ended(shared, client, Verb.FAIL)
    assert await deleted(shared, "delete_workflows", 10, 5 * _DAY) == 0
    assert await walk(shared) == 0, "a redrive of the second one reads the result of the first"
    assert await deleted(shared, "delete_failed_workflows", 10, 5 * _DAY) == 1
    assert await walk(shared) == 1


async def test_a_workflow_that_others_need_is_kept_until_that_was_read(
    shared: Database, client: Client
) -> None:
    run = await ended(shared, client, Verb.SUCCEED)
    after = await client.submit("noop", pool="worker", needs=[run.id])
    assert await deleted(shared, "delete_workflows", 10, 5 * _DAY) == 0
    await follow(shared)
    assert await deleted(shared, "delete_workflows", 10, 5 * _DAY) == 1
    assert (await after.get()).status == "queued"
