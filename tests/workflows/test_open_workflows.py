"""Open workflows: tasks are added until they are sealed, and last tasks run once, after all of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import grns
from grns.client.client import Client
from grns.client.workflow import WorkflowHandle
from grns.errors import ConflictError, ContendedError, InvalidInputError, NotFoundError
from grns.maintenance.audit import audit_now
from grns.model.outcome import Verb
from grns.operations.model import State
from grns.postgres.database import Database
from tests.support.followers import begin_here, follow
from tests.support.operations import step
from tests.support.store import claim, fetch, finish, log_of, redrive, row_of

LAST = {"task": "noop", "pool": "worker", "payload": {"is_last": True}}
ONE = {"task": "noop", "pool": "worker"}


@pytest.fixture(autouse=True)
async def begun(shared: Database) -> None:
    """Let what is followed here begin here."""
    await begin_here(shared)


async def end(database: Database, task_id: str, verb: Verb = Verb.SUCCEED) -> None:
    """Run a task to its end; nothing follows that."""
    await finish(database, await claim(database, task_id), verb)


async def last_task(database: Database) -> dict[str, Any]:
    """Return the last task of the workflow."""
    (row,) = await fetch(database, "select * from grns.tasks where payload ? 'is_last'")
    return dict(row)


async def opened(client: Client, **last: Any) -> WorkflowHandle:
    """Return a workflow that is open and has no task but last ones."""
    flow = client.workflow("import", is_open=True)
    flow.add_last(**(last or {"on_end": LAST}))
    return await flow.submit()


async def counts(run: WorkflowHandle) -> tuple[str, int, int, int, int]:
    """Return status, total, open, succeeded and failed."""
    state = await run.get()
    assert state.skipped == 0
    return state.status, state.total, state.open, state.succeeded, state.failed


async def test_batch_runs_its_last_task_once_it_is_sealed_and_all_have_ended(
    shared: Database, client: Client
) -> None:
    async with client.batch("import", on_success=LAST) as batch:
        first = await batch.submit("noop", pool="worker")
        await end(shared, first.id)
        await follow(shared)
        assert await counts(batch) == ("running", 1, 0, 1, 0)
        second, third = await batch.submit_many([ONE, ONE])
        await end(shared, second.id)
        await follow(shared)
        assert await counts(batch) == ("running", 3, 1, 2, 0)
        assert (await last_task(shared))["status"] == "waiting"
    await follow(shared)
    assert (await last_task(shared))["status"] == "waiting"
    await end(shared, third.id)
    await follow(shared)
    assert await counts(batch) == ("succeeded", 3, 0, 3, 0)
    last = await last_task(shared)
    assert last["status"] == "queued"
    await end(shared, last["id"])
    await follow(shared)
    kinds = [entry["kind"].rpartition(".")[2] for entry in await log_of(shared, batch.id)]
    assert kinds == ["started", "extended", "extended", "sealed", "succeeded"]
    assert "unfollowed" not in [one.invariant for one in await audit_now(shared, 0.0)]


@pytest.mark.parametrize("is_read_between", [True, False])
async def test_seal_and_ends_count_in_any_order(
    shared: Database, client: Client, is_read_between: bool
) -> None:
    run = await opened(client)
    tasks = await run.submit_many([ONE] * 3)
    await end(shared, tasks[0].id)
    if is_read_between:
        await follow(shared)
    await run.seal()
    if is_read_between:
        await follow(shared)
    await end(shared, tasks[1].id, Verb.FAIL)
    await end(shared, tasks[2].id)
    await follow(shared)
    assert await counts(run) == ("failed", 3, 0, 2, 1)
    assert (await last_task(shared))["status"] == "queued"


async def test_sealed_workflow_without_tasks_ends_at_once(shared: Database, client: Client) -> None:
    async with client.batch("import", on_success=LAST) as batch:
        await follow(shared)
        assert await counts(batch) == ("running", 0, 0, 0, 0)
    await follow(shared)
    assert await counts(batch) == ("succeeded", 0, 0, 0, 0)
    assert (await last_task(shared))["status"] == "queued"


async def test_sealed_workflow_takes_no_tasks(shared: Database, client: Client) -> None:
    run = await opened(client)
    assert (await run.get()).sealed_at is None
    sealed = await run.seal()
    assert (sealed.sealed_at, (await run.seal()).sealed_at) == (sealed.sealed_at, sealed.sealed_at)
    with pytest.raises(ConflictError, match="is sealed"):
        await run.submit("noop", pool="worker")
    with pytest.raises(NotFoundError, match="there is no workflow wf-missing"):
        await client.workflow_handle("wf-missing").submit("noop", pool="worker")
    with pytest.raises(NotFoundError):
        await client.seal_workflow("wf-missing")
    closed = client.workflow("closed")
    closed.task("noop", pool="worker")
    with pytest.raises(ConflictError, match="it takes no more tasks"):
        await (await closed.submit()).submit("noop", pool="worker")
    with pytest.raises(InvalidInputError, match="add 1 to 10,000 tasks at once, not 0"):
        await run.submit_many([])


async def test_block_that_raises_leaves_its_batch_open(shared: Database, client: Client) -> None:
    made: list[WorkflowHandle] = []

    async def block() -> None:
        async with client.batch("import", on_end=LAST) as batch:
            made.append(batch)
            await batch.submit("noop", pool="worker")
            raise ConnectionError("the file ends here")

    with pytest.raises(ConnectionError) as raised:
        await block()
    (batch,) = made
    assert f"grns workflow seal {batch.id}" in raised.value.__notes__[0]
    await follow(shared)
    assert (await batch.get()).sealed_at is None
    again = client.workflow_handle(batch.id)
    task = await again.submit("noop", pool="worker")
    await again.seal()
    for (task_id,) in await fetch(shared, "select id from grns.tasks where not payload ? 'is_last'"):
        await end(shared, task_id)
    await follow(shared)
    assert await counts(again) == ("succeeded", 2, 0, 2, 0)
    assert (await row_of(shared, task.id))["trace_id"] == (await again.get()).trace_id


async def test_workflow_is_not_sealed_before_a_transaction_that_adds_to_it_has_ended(
    shared: Database, client: Client
) -> None:
    run = await opened(client)
    async with shared.transaction() as connection:
        added = await run.submit("noop", pool="worker", connection=connection)
        sealing = asyncio.ensure_future(run.seal())
        await asyncio.sleep(0.1)
        await follow(shared)
        assert not sealing.done()
    try:
        await sealing
    except ContendedError:  # the wait was over first
        await run.seal()
    await follow(shared)
    assert await counts(run) == ("running", 1, 1, 0, 0)
    await end(shared, added.id)
    await follow(shared)
    assert await counts(run) == ("succeeded", 1, 0, 1, 0)


async def test_transaction_that_adds_does_not_hold_up_the_follower(shared: Database, client: Client) -> None:
    run, other = await opened(client), await opened(client, on_success=LAST)
    first, second = await run.submit("noop", pool="worker"), await other.submit("noop", pool="worker")
    await other.seal()
    async with shared.transaction() as connection:
        await run.submit("noop", pool="worker", connection=connection)
        await end(shared, first.id)
        await end(shared, second.id)
        await follow(shared)
        assert await counts(run) == ("running", 1, 0, 1, 0)
        assert await counts(other) == ("succeeded", 1, 0, 1, 0)
    await follow(shared)
    assert await counts(run) == ("running", 2, 1, 1, 0)


async def test_rolled_back_transaction_has_added_nothing(shared: Database, client: Client) -> None:
    run = await opened(client)

    async def add() -> None:
        async with shared.transaction() as connection:
            await run.submit("noop", pool="worker", connection=connection)
            raise ConnectionError

    with pytest.raises(ConnectionError):
        await add()
    await run.seal()
    await follow(shared)
    assert await counts(run) == ("succeeded", 0, 0, 0, 0)


async def test_added_tasks_may_need_others_of_the_workflow(shared: Database, client: Client) -> None:
    run = await opened(client)
    first = await run.submit("noop", pool="worker", name="first")
    second = await run.submit("noop", pool="worker", name="second", needs=[first])
    await follow(shared)
    assert (await row_of(shared, second.id))["status"] == "waiting"
    await end(shared, first.id)
    await follow(shared)
    assert (await row_of(shared, second.id))["status"] == "queued"
    last = await last_task(shared)
    after_last = await client.submit("noop", pool="worker", needs=[last["id"]])
    for needed in (last["id"], run.id, after_last.id):
        with pytest.raises(InvalidInputError, match="cannot need its last ones, nor itself"):
            await run.submit("noop", pool="worker", needs=[needed])


async def test_task_with_a_known_key_is_counted_once(shared: Database, client: Client) -> None:
    run = await opened(client)
    for _ in range(2):
        await run.submit("noop", pool="worker", idempotency_key="row 7")
    ended = await client.submit("noop", pool="worker", idempotency_key="row 8")
    await end(shared, ended.id)
    await follow(shared)
    await run.submit("noop", pool="worker", idempotency_key="row 8")
    await follow(shared)
    assert await counts(run) == ("running", 2, 1, 1, 0)


async def test_cancelled_open_workflow_is_sealed(shared: Database, client: Client) -> None:
    run = await opened(client)
    await run.submit_many([ONE] * 2)
    await run.cancel()
    while (moved := await step(shared)) is not None and moved.state is not State.DONE:
        await follow(shared)
    await follow(shared)
    assert await counts(run) == ("cancelled", 2, 0, 0, 2)
    with pytest.raises(ConflictError, match="is sealed"):
        await run.submit("noop", pool="worker")
    assert (await last_task(shared))["status"] == "queued"


async def test_failures_stop_an_open_workflow(shared: Database, client: Client) -> None:
    async with client.batch("import", on_end=LAST, fail_after=grns.Failures(count=1)) as batch:
        first, _ = await batch.submit_many([ONE] * 2)
        await end(shared, first.id, Verb.FAIL)
        await follow(shared)
        state = await batch.get()
        assert (state.sealed_at is None, state.cancel_requested_at is None) == (False, False)
        with pytest.raises(ConflictError, match="is sealed"):
            await batch.submit("noop", pool="worker")
    await step(shared)
    await follow(shared)
    assert await counts(batch) == ("cancelled", 2, 0, 0, 2)


async def test_redriven_task_of_a_sealed_workflow_opens_it_again(shared: Database, client: Client) -> None:
    async with client.batch("import", on_success=LAST) as batch:
        task = await batch.submit("noop", pool="worker")
    await end(shared, task.id, Verb.FAIL)
    await follow(shared)
    assert (await counts(batch))[0] == "failed"
    await redrive(shared, task.id)
    await follow(shared)
    assert (await counts(batch))[:3] == ("running", 1, 1)
    await end(shared, task.id)
    await follow(shared)
    assert await counts(batch) == ("succeeded", 1, 0, 1, 0)


async def test_many_tasks_are_counted_in_several_readings(shared: Database, client: Client) -> None:
    run = await opened(client)
    await run.submit_many([ONE] * 2500)
    await run.submit_many([ONE] * 2500)
    await run.seal()
    await follow(shared)
    assert await counts(run) == ("running", 5000, 5000, 0, 0)
    await fetch(shared, "update grns.needs set ended_as = 'added' where task_id = $1 and needs <> $1", run.id)
    await fetch(shared, "update grns.waits set open = 0, required = 0 where task_id = $1", run.id)
    missed = await shared.run("sweep_waits", "", 10_000, -1.0)
    assert len(missed[0]["ended"]) == 5000


async def test_sql_opens_extends_and_seals_a_workflow(shared: Database) -> None:
    (opening,) = await fetch(
        shared,
        """select task_id from grns.submit_graph('[{"task_type": "noop", "is_last": true, "needs": [
            {"task": "wf-aaaaaaaaaaaaaaaaaaaaaaaaaa", "outcome": "end"}]}]',
            workflow => '{"name": "import", "id": "wf-aaaaaaaaaaaaaaaaaaaaaaaaaa", "is_open": true}')""",
    )
    (added,) = await fetch(
        shared,
        """select task_id from grns.submit_graph('[{"task_type": "noop"}]',
            workflow => '{"id": "wf-aaaaaaaaaaaaaaaaaaaaaaaaaa", "extends": true}')""",
    )
    (sealed,) = await fetch(shared, "select grns.seal_workflow('wf-aaaaaaaaaaaaaaaaaaaaaaaaaa') as was_open")
    (again,) = await fetch(shared, "select grns.seal_workflow('wf-aaaaaaaaaaaaaaaaaaaaaaaaaa') as was_open")
    assert (sealed["was_open"], again["was_open"]) == (True, False)
    await end(shared, added["task_id"])
    await follow(shared)
    assert (await row_of(shared, opening["task_id"]))["status"] == "queued"
