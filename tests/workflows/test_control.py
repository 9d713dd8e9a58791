"""Workflows that are paused, cancelled and redriven."""

from __future__ import annotations

import pytest

import grns
from grns.client.client import Client
from grns.errors import ConflictError, InvalidInputError, NotFoundError
from grns.model.outcome import Verb
from grns.operations.model import State
from grns.postgres.database import Database
from tests.support.followers import begin_here, follow
from tests.support.operations import asked, step
from tests.support.store import claim, fetch, finish, kinds_of, log_of, redrive, row_of, stranger


@pytest.fixture(autouse=True)
async def begun(shared: Database) -> None:
    """Let what is followed here begin here."""
    await begin_here(shared)


async def end(database: Database, task_id: str, verb: Verb = Verb.SUCCEED) -> None:
    """Run a task to its end, and follow that."""
    await finish(database, await claim(database, task_id), verb)
    await follow(database)


async def operated(database: Database) -> None:
    """Run the operation that was asked for to its end, following what it does."""
    while (moved := await step(database)) is not None and moved.state is not State.DONE:
        await follow(database)
    await follow(database)


async def redriven(database: Database, query: str) -> None:
    """Redrive what a filter finds."""
    await asked(database, filter=query)
    await operated(database)


async def statuses(database: Database, *task_ids: str) -> list[str]:
    """Return the status of each task."""
    return [(await row_of(database, task_id))["status"] for task_id in task_ids]


async def test_paused_workflow_queues_nothing_until_it_is_resumed(shared: Database, client: Client) -> None:
    flow = client.workflow("report")
    first = flow.task("noop", pool="worker")
    second = flow.task("noop", pool="worker", needs=[first])
    later = flow.task("noop", pool="worker", needs=[first], delay=3600)
    undo = flow.task("noop", pool="worker", needs=[grns.after(first, "failure")])
    run = await flow.submit()
    state = await run.pause(reason="closed")
    assert (state.status, state.pause_reason, state.paused_at is None) == ("running", "closed", False)
    await end(shared, first.id)
    assert await statuses(shared, second.id, later.id, undo.id) == ["waiting", "waiting", "cancelled"], (
        "what is not to be run is ended"
    )
    assert await follow_finds_nothing(shared), "a task that is held is no mistake"
    await run.resume()
    await follow(shared)
    assert await statuses(shared, second.id, later.id) == ["queued", "waiting"]
    assert [(await row_of(shared, one.id))["waits_for"] for one in (second, later)] == [None, "time"]
    assert (await run.resume()).paused_at is None, "resumed twice"
    kinds = [entry["kind"].rpartition(".")[2] for entry in await log_of(shared, run.id)]
    assert kinds == ["started", "paused", "resumed"]


async def follow_finds_nothing(database: Database) -> bool:
    """Return whether the sweep finds nothing to repair."""
    leading = await follow(database)
    await leading.sweep(patience_seconds=0.0)
    return not leading.has_work


async def test_other_tasks_are_queued_while_a_workflow_is_paused(shared: Database, client: Client) -> None:
    flow = client.workflow("report")
    first = flow.task("noop", pool="worker")
    flow.task("noop", pool="worker", needs=[first])
    run = await flow.submit()
    outside = await client.submit("noop", pool="worker", needs=[first.id])
    await run.pause()
    await end(shared, first.id)
    assert await statuses(shared, outside.id) == ["queued"]


async def test_cancelled_workflow_runs_its_last_tasks_and_no_branch(shared: Database, client: Client) -> None:
    flow = client.workflow("report")
    running = flow.task("noop", pool="worker")
    second = flow.task("noop", pool="worker", needs=[running])
    waiting = flow.task("noop", pool="worker", needs=[second])
    undo = flow.task("noop", pool="worker", needs=[grns.after(second, "failure")])
    after = flow.on_failure("noop", pool="worker")
    run = await flow.submit()
    claimed = await claim(shared, running.id)
    operation = await run.cancel(reason="wrong month")
    assert (operation.action, operation.matched) == ("cancel", 4)
    await follow(shared)
    await operated(shared)
    assert await statuses(shared, second.id, waiting.id, undo.id) == ["cancelled"] * 3
    assert (await row_of(shared, running.id))["cancel_requested_at"] is not None
    assert (await run.get()).status == "running"
    await finish(shared, claimed, Verb.CANCEL)
    await follow(shared)
    state = await run.get()
    assert (state.status, state.failed) == ("cancelled", 4)
    assert await statuses(shared, after.id) == ["queued"]
    with pytest.raises(ConflictError, match="ended as cancelled: it cannot pause"):
        await run.pause()
    kinds = [entry["kind"].rpartition(".")[2] for entry in await log_of(shared, run.id)]
    assert kinds == ["started", "cancel_requested", "cancelled"]


async def test_cancelled_workflow_queues_no_task_before_its_operation_comes(
    shared: Database, client: Client
) -> None:
    flow = client.workflow("report")
    first = flow.task("noop", pool="worker")
    second = flow.task("noop", pool="worker", needs=[first])
    run = await flow.submit()
    await run.cancel()
    with pytest.raises(ConflictError, match="is being cancelled"):
        await run.redrive()
    await end(shared, first.id)
    row = await row_of(shared, second.id)
    assert (row["status"], row["cancel_reason"]) == ("cancelled", "workflow_cancelled")
    assert (await run.get()).status == "cancelled"
    await run.redrive()
    await follow(shared)
    assert await statuses(shared, second.id) == ["queued"], "its need is met"


async def test_redriven_workflow_runs_in_the_order_of_its_needs(shared: Database, client: Client) -> None:
    flow = client.workflow("report")
    first = flow.task("noop", pool="worker")
    second = flow.task("noop", pool="worker", needs=[first])
    third = flow.task("noop", pool="worker", needs=[second])
    run = await flow.submit()
    await run.cancel()
    await operated(shared)
    assert await statuses(shared, first.id, second.id, third.id) == ["cancelled"] * 3
    operation = await run.redrive(reason="right month after all")
    assert (operation.action, operation.matched) == ("redrive", 3)
    await operated(shared)
    assert await statuses(shared, first.id, second.id, third.id) == ["queued", "waiting", "waiting"]
    for task in (first, second, third):
        await end(shared, task.id)
    state = await run.get()
    assert (state.status, state.succeeded, state.cancel_requested_at) == ("succeeded", 3, None)
    with pytest.raises(ConflictError, match="ended as succeeded: it cannot redrive"):
        await run.redrive()


async def test_task_that_is_redriven_while_its_need_is_not_is_cancelled_again(
    shared: Database, client: Client
) -> None:
    """It comes back when its need does."""
    flow = client.workflow("report")
    first = flow.task("noop", pool="worker")
    second = flow.task("noop", pool="worker", name="second", needs=[first])
    run = await flow.submit()
    await end(shared, first.id, Verb.FAIL)
    assert await statuses(shared, second.id) == ["cancelled"]
    await redriven(shared, f"status:cancelled workflow:{run.id}")
    row = await row_of(shared, second.id)
    assert (row["status"], row["cancel_reason"]) == ("cancelled", "dependency")
    assert await kinds_of(shared, second.id) == [
        "evt.task.waiting", "evt.task.cancelled", "evt.task.waiting", "evt.task.cancelled",
    ]  # fmt: skip
    await redrive(shared, first.id)
    await follow(shared)
    assert await statuses(shared, second.id) == ["waiting"]
    await end(shared, first.id)
    assert await statuses(shared, second.id) == ["queued"]


async def test_task_that_is_redriven_in_a_workflow_that_is_being_cancelled_ends(
    shared: Database, client: Client
) -> None:
    flow = client.workflow("report")
    first = flow.task("noop", pool="worker")
    second = flow.task("noop", pool="worker", needs=[first])
    long = flow.task("noop", pool="worker", name="long")
    run = await flow.submit()
    claimed = await claim(shared, long.id)
    await end(shared, first.id, Verb.FAIL)
    await run.cancel()
    await operated(shared)
    await redrive(shared, first.id)
    await end(shared, first.id)
    assert await statuses(shared, first.id, second.id) == ["succeeded", "cancelled"]
    await finish(shared, claimed, Verb.CANCEL)
    await follow(shared)
    assert (await run.get()).status == "cancelled"


async def test_task_that_is_redriven_keeps_needs_that_were_deleted(shared: Database, client: Client) -> None:
    first = await client.submit("noop", pool="worker")
    second = await client.submit("noop", pool="worker", needs=[first], max_attempts=1)
    await follow(shared)
    await end(shared, first.id)
    await end(shared, second.id, Verb.RETRY)
    await fetch(shared, "delete from grns.tasks where id = $1", first.id)
    await redriven(shared, "status:dead")
    assert await statuses(shared, second.id) == ["queued"]


async def test_paused_workflow_stays_paused_if_it_is_redriven(shared: Database, client: Client) -> None:
    flow = client.workflow("report")
    first = flow.task("noop", pool="worker")
    second = flow.task("noop", pool="worker", needs=[first])
    flow.task("noop", pool="worker", name="open")
    run = await flow.submit()
    await end(shared, first.id, Verb.FAIL)
    await run.pause()
    await run.redrive()
    await operated(shared)
    await end(shared, first.id)
    assert await statuses(shared, second.id) == ["waiting"]
    await run.resume()
    await follow(shared)
    assert await statuses(shared, second.id) == ["queued"]


async def test_dead_task_that_is_redriven_waits_for_what_runs_again(shared: Database, client: Client) -> None:
    first = await client.submit("noop", pool="worker")
    second = await client.submit("noop", pool="worker", needs=[first], max_attempts=1)
    await follow(shared)
    await end(shared, first.id)
    await end(shared, second.id, Verb.RETRY)
    assert await statuses(shared, second.id) == ["dead"]
    await redriven(shared, "status:dead")
    assert await statuses(shared, second.id) == ["queued"], "its need is met still"


@pytest.mark.parametrize(
    "fail_after", [grns.Failures(count=2), grns.Failures(share=0.5, of_at_least=3)], ids=["count", "share"]
)
async def test_too_many_failures_cancel_what_has_not_ended(
    shared: Database, client: Client, fail_after: grns.Failures
) -> None:
    flow = client.workflow("import", fail_after=fail_after)
    pages = [flow.task("noop", pool="worker") for _ in range(6)]
    flow.task("noop", pool="worker", name="report", needs=pages, required=1)
    run = await flow.submit()
    verbs = (Verb.FAIL, Verb.FAIL) if fail_after.count else (Verb.FAIL, Verb.SUCCEED, Verb.FAIL)
    for page, verb in zip(pages, verbs, strict=False):
        assert (await run.get()).cancel_requested_at is None
        await end(shared, page.id, verb)
    assert (await run.get()).cancel_requested_at is not None
    await operated(shared)
    assert (await run.get()).status == "cancelled"
    kinds = [entry["kind"].rpartition(".")[2] for entry in await log_of(shared, run.id)]
    assert kinds == ["started", "threshold", "cancelled"]
    await run.redrive()
    await operated(shared)
    await end(shared, pages[-1].id, Verb.FAIL)
    assert (await run.get()).cancel_requested_at is None, "it is stopped once"


async def test_too_many_failures_pause_a_workflow(shared: Database, client: Client) -> None:
    flow = client.workflow("import", fail_after=grns.Failures(count=1, then="pause"))
    first, second = (flow.task("noop", pool="worker") for _ in range(2))
    third = flow.task("noop", pool="worker", needs=[second])
    run = await flow.submit()
    await end(shared, first.id, Verb.FAIL)
    state = await run.get()
    assert (state.status, state.paused_by) == ("running", "grns")
    await end(shared, second.id)
    assert await statuses(shared, third.id) == ["waiting"]
    await run.resume()
    await follow(shared)
    assert await statuses(shared, third.id) == ["queued"]


async def test_too_many_failures_are_told_and_the_workflow_goes_on(shared: Database, client: Client) -> None:
    flow = client.workflow("import", fail_after=grns.Failures(count=1, then="notify"))
    tasks = [flow.task("noop", pool="worker") for _ in range(2)]
    third = flow.task("noop", pool="worker", needs=[tasks[1]])
    run = await flow.submit()
    await end(shared, tasks[0].id, Verb.FAIL)
    state = await run.get()
    assert (state.status, state.paused_at, state.cancel_requested_at) == ("running", None, None)
    await end(shared, tasks[1].id)
    await end(shared, third.id)
    kinds = [entry["kind"].rpartition(".")[2] for entry in await log_of(shared, run.id)]
    assert kinds == ["started", "threshold", "failed"]


async def test_failure_of_the_last_task_is_told_too(shared: Database, client: Client) -> None:
    flow = client.workflow("import", fail_after=grns.Failures(count=1))
    task = flow.task("noop", pool="worker")
    run = await flow.submit()
    await end(shared, task.id, Verb.FAIL)
    kinds = [entry["kind"].rpartition(".")[2] for entry in await log_of(shared, run.id)]
    assert kinds == ["started", "threshold", "failed"]


@pytest.mark.parametrize(
    "said",
    ["{}", '{"count": 0}', '{"share": 2}', '{"count": 1, "share": 0.5}', '{"count": 1, "then": "x"}', "[]"],
)
async def test_failures_that_make_no_sense_are_refused_in_sql(shared: Database, said: str) -> None:
    graph = '[{"task_type": "noop"}]'
    with pytest.raises(InvalidInputError, match="fail_after"):
        await shared.run("submit_graph", graph, "default", None, f'{{"name": "x", "fail_after": {said}}}')


async def test_workflow_that_another_session_has_locked_holds_up_no_other(
    shared: Database, client: Client
) -> None:
    runs = []
    for _ in range(2):
        flow = client.workflow("one")
        flow.task("noop", pool="worker", name="only")
        flow.on_success("noop", pool="worker", name="after")
        runs.append(await flow.submit())
    locked, free = runs
    async with stranger(shared) as other:
        await other.execute("select from grns.workflows where id = $1 for update", locked.id)
        for run in runs:
            await end(shared, run.tasks["only"].id)
        assert [(await run.get()).status for run in runs] == ["running", "succeeded"]
        assert await statuses(shared, free.tasks["after"].id) == ["queued"]
        await other.execute("update grns.workflows set version = version + 1 where id = $1", locked.id)
        await other.execute("commit")
    leading = await follow(shared)
    while leading.has_work:
        await follow(shared, leading)
    await follow(shared, leading)
    assert (await locked.get()).status == "succeeded"
    assert await statuses(shared, locked.tasks["after"].id) == ["queued"]


async def test_workflow_that_does_not_exist_cannot_be_changed(client: Client) -> None:
    for change in (client.pause_workflow, client.resume_workflow):
        with pytest.raises(NotFoundError, match="no workflow wf-nothing"):
            await change("wf-nothing")
    for operate in (client.cancel_workflow, client.redrive_workflow):
        with pytest.raises(NotFoundError, match="no workflow wf-nothing"):
            await operate("wf-nothing")


async def test_filter_finds_the_tasks_of_a_workflow(client: Client) -> None:
    flow = client.workflow("report")
    first = flow.task("noop", pool="worker")
    second = flow.task("noop", pool="worker", needs=[first])
    flow.on_end("noop", pool="worker")
    run = await flow.submit()
    other = await client.submit("noop", pool="worker")
    assert {one.id for one in (await client.list(f"workflow:{run.id}")).rows} == {first.id, second.id}
    assert (await client.count(f"workflow:{run.id} status:waiting")).number == 1
    (last,) = (await client.list(f"needs:{run.id}")).rows
    assert [one.id for one in (await client.list(f"needs:{first.id} waits:tasks")).rows] == [second.id]
    assert {one.id for one in (await client.list(f"needs:{first.id},{run.id}")).rows} == {second.id, last.id}
    found = {one.id for one in (await client.list(f"-workflow:{run.id}")).rows}
    assert other.id in found
    assert not found & {first.id, second.id}
    assert [one.id for one in (await client.workflows("running", limit=1)).rows] == [run.id]


async def test_branch_is_paused_cancelled_and_redriven_by_its_first_task(
    shared: Database, client: Client
) -> None:
    flow = client.workflow("branches")
    root = flow.task("noop", pool="worker", name="root")
    first, other = (flow.task("noop", pool="worker", needs=[root]) for _ in range(2))
    second = flow.task("noop", pool="worker", needs=[first])
    await flow.submit()
    assert await client.pause_task(first.id) == "paused"
    await end(shared, root.id)
    assert await statuses(shared, first.id, second.id, other.id) == ["waiting", "waiting", "queued"]
    assert await client.resume_task(first.id) == "resumed"
    await follow(shared)
    assert await statuses(shared, first.id) == ["queued"]
    assert await client.cancel(first.id) == "cancelled"
    await follow(shared)
    assert await statuses(shared, first.id, second.id, other.id) == ["cancelled", "cancelled", "queued"]
    assert await client.redrive(first.id) == "redriven"
    await follow(shared)
    assert await statuses(shared, first.id, second.id) == ["queued", "waiting"]
    await end(shared, first.id)
    assert await statuses(shared, second.id) == ["queued"]
