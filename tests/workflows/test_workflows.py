"""Workflows: tasks that are submitted together, counted, and followed by last tasks."""

from __future__ import annotations

import json
import random

import pytest

import grns
from grns.client.client import Client
from grns.errors import InvalidInputError, NotFoundError, WaitTimeoutError
from grns.model.json import Limits
from grns.model.outcome import Verb
from grns.postgres.database import Database
from grns.tasks.submit import Submissions
from grns.tasks.workflow_plan import planned, read_plan
from grns.tasks.workflows import WorkflowState, members
from tests.support.followers import begin_here, follow
from tests.support.store import claim, fetch, finish, log_of, redrive, row_of


@pytest.fixture(autouse=True)
async def begun(shared: Database) -> None:
    """Let what is followed here begin here."""
    await begin_here(shared)


async def end(database: Database, task_id: str, verb: Verb = Verb.SUCCEED) -> None:
    """Run a task to its end, and follow that."""
    await finish(database, await claim(database, task_id), verb)
    await follow(database)


def counts(state: WorkflowState) -> tuple[str, int, int, int, int]:
    """Return status, open, succeeded, failed and skipped."""
    return state.status, state.open, state.succeeded, state.failed, state.skipped


async def test_a_workflow_runs_in_the_order_of_its_needs(shared: Database, client: Client) -> None:
    flow = client.workflow("report")
    pages = [flow.task("noop", {"page": number}, pool="worker") for number in range(3)]
    report = flow.task("noop", pool="worker", name="report", needs=pages)
    run = await flow.submit()
    assert list(run.tasks) == ["noop", "noop#2", "noop#3", "report"]
    await follow(shared)
    assert counts(await run.get()) == ("running", 4, 0, 0, 0)
    for page in pages:
        assert (await row_of(shared, report.id))["status"] == "waiting"
        await end(shared, page.id)
    await end(shared, report.id)
    state = await run.wait(timeout=5)
    assert counts(state) == ("succeeded", 0, 4, 0, 0)
    assert (state.name, state.total, state.version, state.ended_at is None) == ("report", 4, 2, False)
    kinds = [entry["kind"] for entry in await log_of(shared, run.id)]
    assert kinds == ["evt.workflow.started", "evt.workflow.succeeded"]


async def test_result_of_a_task_whose_need_failed_names_the_need(shared: Database, client: Client) -> None:
    flow = client.workflow("report")
    page = flow.task("noop", pool="worker", name="page")
    report = flow.task("noop", pool="worker", name="report", needs=[page])
    run = await flow.submit()
    await end(shared, page.id, Verb.FAIL)
    with pytest.raises(grns.TaskCancelledError, match=f"it needs {page.id}, which has not ended that way$"):
        await run.tasks["report"].result(timeout=5)
    assert (await run.get()).failures == ["page", "report"]
    assert report.id == run.tasks["report"].id


@pytest.mark.parametrize("way", ["client", "document", "sql"])
async def test_tasks_of_a_workflow_have_one_trace(shared: Database, client: Client, way: str) -> None:
    if way == "client":
        flow = client.workflow("pair")
        for _ in range(2):
            flow.task("noop", pool="worker")
        await flow.submit()
    elif way == "document":
        plan = planned(
            read_plan({"name": "pair", "tasks": [{"task_type": "noop"}, {"name": "b", "task_type": "noop"}]}),
            workspace="default",
            trace_id=None,
            limits=Limits(),
        )
        await Submissions(shared, batch_limit=2).submit_workflow(plan.tasks, plan.workflow)
    else:
        await fetch(
            shared,
            """select * from grns.submit_graph('[{"task_type": "noop"}, {"task_type": "noop"}]',
                workflow => '{"name": "pair"}')""",
        )
    (row,) = await fetch(
        shared,
        "select count(*) as tasks, count(distinct t.trace_id) as traces,"
        " bool_and(t.trace_id = k.trace_id) as same"
        " from grns.tasks t cross join grns.workflows k",
    )
    assert (row["tasks"], row["traces"], row["same"]) == (2, 1, True)


@pytest.mark.parametrize("way", ["client", "document", "sql"])
async def test_tasks_of_one_millisecond_are_listed_in_the_order_of_their_submission(
    shared: Database, client: Client, way: str
) -> None:
    names = [f"part {number}" for number in random.Random(7).sample(range(40), 40)]
    if way == "client":
        flow = client.workflow("parts")
        for name in names:
            flow.task("noop", pool="worker", name=name)
        await flow.submit()
    else:
        tasks = [{"name": name, "task_type": "noop"} for name in names]
        if way == "document":
            # A task that stands before one that it needs comes after that.
            first, *rest = names
            tasks[0]["needs"] = [rest[-1]]  # type: ignore[assignment]
            names = [*rest, first]
            plan = planned(
                read_plan({"name": "parts", "tasks": tasks}),
                workspace="default",
                trace_id=None,
                limits=Limits(),
            )
            await Submissions(shared, batch_limit=50).submit_workflow(plan.tasks, plan.workflow)
        else:
            await shared.run("submit_graph", json.dumps(tasks), "default", None, '{"name": "parts"}')
    (row,) = await fetch(shared, "select id from grns.workflows")
    page = await members(shared, row["id"], workspace="default", limit=50)
    assert [one.name for one in page.rows] == names


async def test_a_batch_with_needs_is_created_as_a_whole(shared: Database, client: Client) -> None:
    first = await client.submit("noop", pool="worker")
    plain = {"task": "noop", "pool": "worker"}
    made = await client.submit_many([plain, {**plain, "needs": [first]}])
    assert [(await row_of(shared, one.id))["status"] for one in made] == ["queued", "waiting"]  # type: ignore[union-attr]
    with pytest.raises(InvalidInputError, match="no task gr-nothing"):
        await client.submit_many([{**plain, "idempotency_key": "k"}, {**plain, "needs": ["gr-nothing"]}])
    assert (await client.count("key:k")).number == 0


async def test_results_are_read_by_name(shared: Database, client: Client) -> None:
    flow = client.workflow("sum")
    first, second = (flow.task("noop", pool="worker", name=name) for name in ("first", "second"))
    total = flow.task("noop", pool="worker", name="total", needs=[grns.after(first, name="one"), second])
    await flow.submit()
    for number, task in enumerate((first, second)):
        await end(shared, task.id)
        await fetch(
            shared, "update grns.tasks set result = $2::text::jsonb where id = $1", task.id, str(number)
        )
    rows = await shared.run("read_results", total.id, "default")
    assert {row["name"]: json.loads(row["result"]) for row in rows} == {"one": 0, "second": 1}


async def test_a_failure_ends_a_workflow_and_a_redrive_opens_it_again(
    shared: Database, client: Client
) -> None:
    flow = client.workflow("chain")
    first = flow.task("noop", pool="worker")
    second = flow.task("noop", pool="worker", needs=[first])
    undo = flow.task("noop", pool="worker", name="undo", needs=[grns.after(first, "failure")])
    run = await flow.submit()
    await end(shared, first.id, Verb.FAIL)
    await end(shared, undo.id)
    assert counts(await run.get()) == ("failed", 0, 1, 2, 0)
    await redrive(shared, first.id)
    await follow(shared)
    assert (await run.get()).status == "running"
    await end(shared, first.id)
    await end(shared, second.id)
    assert counts(await run.get()) == ("succeeded", 0, 3, 0, 0), (
        "what was undone was, and is not undone again"
    )
    kinds = [entry["kind"].rpartition(".")[2] for entry in await log_of(shared, run.id)]
    assert kinds == ["started", "failed", "reopened", "succeeded"]


async def test_a_skipped_branch_is_no_failure(shared: Database, client: Client) -> None:
    flow = client.workflow("order")
    charge = flow.task("noop", pool="worker", name="charge")
    flow.task("noop", pool="worker", name="refund", needs=[grns.after(charge, "failure")])
    run = await flow.submit()
    await end(shared, charge.id)
    assert counts(await run.get()) == ("succeeded", 0, 1, 0, 1)


@pytest.mark.parametrize(
    ("verb", "queued"), [(Verb.SUCCEED, {"success", "end"}), (Verb.FAIL, {"failure", "end"})]
)
async def test_last_tasks_run_when_all_others_have_ended(
    shared: Database, client: Client, verb: Verb, queued: set[str]
) -> None:
    flow = client.workflow("import")
    parts = [flow.task("noop", pool="worker") for _ in range(3)]
    last = {
        "success": flow.on_success("noop", pool="worker", name="success"),
        "failure": flow.on_failure("noop", pool="worker", name="failure"),
        "end": flow.on_end("noop", pool="worker", name="end"),
    }
    run = await flow.submit()
    for part in parts[:2]:
        await end(shared, part.id)
    assert {(await row_of(shared, one.id))["status"] for one in last.values()} == {"waiting"}
    await end(shared, parts[2].id, verb)
    there = {name for name, one in last.items() if (await row_of(shared, one.id))["status"] == "queued"}
    assert there == queued
    assert (await run.get()).total == 3


async def test_another_task_may_need_a_workflow(shared: Database, client: Client) -> None:
    flow = client.workflow("first")
    only = flow.task("noop", pool="worker")
    run = await flow.submit()
    after = await client.submit("noop", pool="worker", needs=[run.id])
    await end(shared, only.id)
    assert (await row_of(shared, after.id))["status"] == "queued"


async def test_a_workflow_exists_if_its_transaction_commits(shared: Database, client: Client) -> None:
    flow = client.workflow("orders")
    first = flow.task("noop", pool="worker")
    flow.task("noop", pool="worker", needs=[first])
    async with shared.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        run = await flow.submit(connection=connection)
        await transaction.rollback()
    with pytest.raises(NotFoundError):
        await run.get()
    assert await fetch(shared, "select from grns.needs") == []


async def test_what_cannot_be_a_workflow_is_refused(client: Client) -> None:
    flow = client.workflow("empty")
    with pytest.raises(InvalidInputError, match="no task"):
        await flow.submit()
    flow.on_end("noop", pool="worker")
    with pytest.raises(InvalidInputError, match="no task"):
        await flow.submit()
    flow.task("noop", pool="worker", name="one")
    with pytest.raises(InvalidInputError, match="has a task 'one'"):
        flow.task("noop", pool="worker", name="one")
    with pytest.raises(InvalidInputError, match="pass handles, ids"):
        flow.task("noop", pool="worker", needs=[5])  # type: ignore[list-item]
    for alone in ("gr-1", grns.after("gr-1")):
        with pytest.raises(InvalidInputError, match="pass a list"):
            flow.task("noop", pool="worker", needs=alone)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="needs the whole workflow"):
        flow.on_failure("noop", pool="worker", needs=["gr-1"])
    with pytest.raises(InvalidInputError, match="more than there are needs"):
        flow.task("noop", pool="worker", required=1)


async def test_waiting_for_a_workflow_has_an_end(client: Client) -> None:
    flow = client.workflow("slow")
    flow.task("noop", pool="worker")
    run = await flow.submit()
    with pytest.raises(WaitTimeoutError, match="has not ended"):
        await run.wait(timeout=0.1)


async def test_the_largest_workflow_is_created_in_one_statement(shared: Database, client: Client) -> None:
    flow = client.workflow("large")
    first = flow.task("noop", pool="worker", name="first")
    pages = [flow.task("noop", pool="worker", needs=[first]) for _ in range(9_998)]
    flow.task("noop", pool="worker", name="end", needs=pages)
    await flow.submit()
    (row,) = await fetch(
        shared, "select count(*) as tasks, (select count(*) from grns.needs) as needs from grns.tasks"
    )
    assert tuple(row) == (10_000, 9_998 * 2 + 10_000)
