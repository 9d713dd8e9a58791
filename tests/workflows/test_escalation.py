"""Escalations: a task that is submitted, once, when too many tasks of a workflow have failed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

import grns
from grns.client.client import Client
from grns.client.workflow import WorkflowHandle
from grns.errors import InvalidInputError, UnavailableError
from grns.model.json import Limits
from grns.model.outcome import Verb
from grns.operations.model import State
from grns.postgres.database import Database
from grns.tasks.announce import QueuedTask
from grns.tasks.submit import Submissions
from grns.tasks.workflow_plan import planned, read_plan
from grns.workflows.follower import TaskFollower
from tests.support.admitters import admit, put_limit
from tests.support.followers import begin_here, follow, lead
from tests.support.operations import step
from tests.support.store import claim, fetch, finish, log_of, redrive, stranger

CALL = grns.Escalate("call_a_human", {"team": "imports", "failed": "by us"}, pool="ops")
pool = grns.Pool("ops")


@pool.task("page", max_attempts=5)
async def page_operator(alarm: dict[str, Any]) -> None:
    """Call an operator."""


@pytest.fixture(autouse=True)
async def begun(shared: Database) -> None:
    """Let what is followed here begin here."""
    await begin_here(shared)


async def submitted(client: Client, tasks: int = 4, *, then: Any = CALL, count: int = 2) -> WorkflowHandle:
    """Submit a workflow of tasks that need nothing."""
    flow = client.workflow("import", fail_after=grns.Failures(count=count, then=then))
    for place in range(tasks):
        flow.task("noop", pool="worker", name=f"part {place}")
    return await flow.submit()


async def fail(database: Database, run: WorkflowHandle, *places: int) -> None:
    """Let tasks of a workflow fail; nothing follows that."""
    for place in places:
        await finish(database, await claim(database, run.tasks[f"part {place}"].id), Verb.FAIL)


async def escalated(database: Database) -> list[dict[str, Any]]:
    """Return the tasks that were submitted for failures."""
    return [dict(row) for row in await fetch(database, "select * from grns.tasks where agent_type = 'ops'")]


async def operated(database: Database) -> None:
    """Run the operation that was asked for to its end, following what it does."""
    while (moved := await step(database)) is not None and moved.state is not State.DONE:
        await follow(database)
    await follow(database)


async def test_threshold_submits_one_task_and_the_workflow_runs_on(shared: Database, client: Client) -> None:
    run = await submitted(client)
    await fail(shared, run, 0)
    await follow(shared)
    assert await escalated(shared) == []
    await fail(shared, run, 1)
    leading = await follow(shared)
    (task,) = await escalated(shared)
    assert (task["task_type"], task["priority"], task["status"], task["max_attempts"]) == (
        "call_a_human", 0, "queued", None,
    )  # fmt: skip
    assert json.loads(task["payload"]) == {
        "team": "imports", "workflow_id": run.id, "workflow": "import", "total": 4, "failed": 2,
        "reason": "too many tasks of the workflow have failed",
    }  # fmt: skip
    state = await run.get()
    assert (state.status, state.paused_at, state.cancel_requested_at) == ("running", None, None)
    assert (state.escalation_task_id, task["trace_id"]) == (task["id"], state.trace_id)
    log = await log_of(shared, task["id"])
    assert [entry["kind"] for entry in log] == ["evt.task.queued", "cmd.task.execute"]
    assert (log[0]["actor"], log[1]["route"]) == ("grns", "ops.p0")
    (told,) = [one for one in await log_of(shared, run.id) if one["kind"] == "evt.workflow.threshold"]
    assert json.loads(told["payload"])["escalation_task_id"] == task["id"]
    assert leading._queued == [QueuedTask("default", "ops", task["id"])], "its pool is told"


async def test_escalation_fires_once_whatever_is_read_again(shared: Database, client: Client) -> None:
    run = await submitted(client)
    await fail(shared, run, 0, 1, 2)
    await follow(shared)
    await fail(shared, run, 3)
    await fetch(shared, "update grns.follow_cursor set low = 0")
    await follow(shared, await lead(shared, "another one"))
    for place in range(4):
        await redrive(shared, run.tasks[f"part {place}"].id)
    await follow(shared)
    await fail(shared, run, 0, 1, 2, 3)
    await follow(shared)
    await run.redrive()
    await operated(shared)
    await fail(shared, run, 0, 1, 2, 3)
    await follow(shared)
    assert len(await escalated(shared)) == 1
    assert (await run.get()).status == "failed"


async def test_redriven_workflow_does_not_escalate(shared: Database, client: Client) -> None:
    run = await submitted(client, 2)
    await fail(shared, run, 0)
    await follow(shared)
    await run.redrive()
    await operated(shared)
    await fail(shared, run, 0, 1)
    await follow(shared)
    assert await escalated(shared) == []


@pytest.mark.parametrize("then", [[CALL, "cancel"], ("pause", CALL)], ids=["cancel", "pause"])
async def test_workflow_is_stopped_and_escalated(shared: Database, client: Client, then: Any) -> None:
    run = await submitted(client, then=then)
    await fail(shared, run, 0, 1)
    await follow(shared)
    state = await run.get()
    assert (state.cancel_requested_at is not None, state.paused_at is not None) == (
        "cancel" in then,
        "pause" in then,
    )
    if "cancel" in then:
        await operated(shared)
    assert len(await escalated(shared)) == 1


async def test_failure_of_the_last_task_that_ends_escalates(shared: Database, client: Client) -> None:
    run = await submitted(client, 2)
    await fail(shared, run, 0, 1)
    await follow(shared)
    (task,) = await escalated(shared)
    assert (await run.get()).status == "failed"
    told = (await log_of(shared, run.id))[-1]
    assert (told["kind"], json.loads(told["payload"])["escalation_task_id"]) == (
        "evt.workflow.failed",
        task["id"],
    )


async def test_workflow_that_a_user_cancels_does_not_escalate(shared: Database, client: Client) -> None:
    run = await submitted(client)
    await run.cancel()
    await operated(shared)
    assert (await run.get()).failed == 4
    await run.redrive()
    await operated(shared)
    assert await escalated(shared) == []
    assert "evt.workflow.threshold" not in [entry["kind"] for entry in await log_of(shared, run.id)]


async def test_statement_that_is_rolled_back_escalates_when_it_is_repeated(
    shared: Database, client: Client
) -> None:
    run = await submitted(client)
    await fail(shared, run, 0, 1)
    # Written last, hence all before it is undone.
    await fetch(shared, "alter table grns.follow_cursor add constraint broken check (moves < 0) not valid")
    try:
        leading = await lead(shared)
        with pytest.raises(Exception, match="broken"):
            await leading.step(2000)
        assert await escalated(shared) == []
    finally:
        await fetch(shared, "alter table grns.follow_cursor drop constraint broken")
    await follow(shared)
    assert len(await escalated(shared)) == 1


async def test_leader_that_was_replaced_does_not_escalate(shared: Database, client: Client) -> None:
    run = await submitted(client)
    late = await lead(shared)
    await fail(shared, run, 0, 1)
    leading = await lead(shared, "another one")
    with pytest.raises(UnavailableError):
        await late.step(2000)
    assert await escalated(shared) == []
    await follow(shared, leading)
    assert len(await escalated(shared)) == 1


async def test_workflow_that_is_locked_escalates_later(shared: Database, client: Client) -> None:
    run = await submitted(client)
    async with stranger(shared) as other:
        await other.execute("select from grns.workflows where id = $1 for update", run.id)
        await fail(shared, run, 0, 1)
        leading = await follow(shared)
        assert await escalated(shared) == []
        assert leading.has_work
    await _until_done(shared, leading)
    assert len(await escalated(shared)) == 1


async def test_workflow_that_is_cancelled_meanwhile_does_not_escalate(
    shared: Database, client: Client
) -> None:
    run = await submitted(client)
    async with stranger(shared) as other:
        await other.execute("update grns.workflows set cancel_requested_at = now() where id = $1", run.id)
        await fail(shared, run, 0, 1)
        leading = await follow(shared)
        await other.execute("commit")
    await _until_done(shared, leading)
    assert await escalated(shared) == []
    (row,) = await fetch(shared, "select stopped_at is not null as is_stopped from grns.workflows")
    assert row["is_stopped"]


async def test_workflow_that_a_user_has_paused_escalates_and_stays_paused(
    shared: Database, client: Client
) -> None:
    run = await submitted(client, then=["pause", CALL])
    await run.pause(reason="closed")
    await fail(shared, run, 0, 1)
    await follow(shared)
    assert len(await escalated(shared)) == 1
    assert (await run.get()).pause_reason == "closed"


async def test_escalation_under_a_limit_waits_until_it_is_admitted(shared: Database, client: Client) -> None:
    await put_limit(shared, "calls", agent_type="ops", max_tasks=1)
    await put_limit(shared, "workflow", agent_type="ops", key="workflow", max_tasks=9)
    for _ in range(2):
        run = await submitted(client)
        await fail(shared, run, 0, 1)
    await follow(shared)
    tasks = await escalated(shared)
    assert [(task["status"], task["waits_for"]) for task in tasks] == [("waiting", "limit")] * 2
    assert [task["limits"] for task in tasks] == [["calls", "workflow:import"]] * 2
    await admit(shared)
    assert sorted(task["status"] for task in await escalated(shared)) == ["queued", "waiting"]


async def _until_done(database: Database, leading: TaskFollower) -> None:
    while leading.has_work:
        await follow(database, leading)


async def test_handler_names_type_pool_and_payload(shared: Database, client: Client) -> None:
    call = grns.Escalate(page_operator, {"team": "imports"}, priority=1, max_attempts=7)
    run = await submitted(client, then=call)
    await fail(shared, run, 0, 1)
    await follow(shared)
    (task,) = await escalated(shared)
    assert (task["task_type"], task["priority"], task["max_attempts"]) == ("page", 1, 7)
    assert json.loads(task["payload"])["team"] == "imports"


async def test_document_escalates(shared: Database) -> None:
    plan = planned(
        read_plan(
            {
                "name": "import",
                "fail_after": {"count": 1, "then": {"task_type": "call", "agent_type": "ops"}},
                "tasks": [{"name": "part 0", "task_type": "noop"}],
            }
        ),
        workspace="default",
        trace_id=None,
        limits=Limits(),
    )
    await Submissions(shared, batch_limit=10).submit_workflow(plan.tasks, plan.workflow)
    await finish(shared, await claim(shared, plan.tasks[0].id), Verb.FAIL)
    await follow(shared)
    (task,) = await escalated(shared)
    assert (task["task_type"], json.loads(task["payload"])["failed"]) == ("call", 1)


@pytest.mark.parametrize(
    "then",
    [
        {"task_type": "two words"},
        {},
        {"task_type": "call", "agent_type": "instance"},
        {"task_type": "call", "priority": 4},
        {"task_type": "call", "priority": "0"},
        {"task_type": "call", "max_attempts": 0},
        {"task_type": "call", "payload": [1]},
        [],
        ["cancel", "pause"],
        [{"task_type": "call"}, {"task_type": "call"}],
        ["cancel", "pause", {"task_type": "call"}],
        [1],
    ],
)
async def test_escalation_that_cannot_be_submitted_is_refused(shared: Database, then: Any) -> None:
    graph = '[{"task_type": "noop"}]'
    said = json.dumps({"name": "x", "fail_after": {"count": 1, "then": then}})
    if then != {"task_type": "call", "priority": "0"}:  # SQL takes a number in quotes for one
        with pytest.raises(InvalidInputError, match=r"fail_after|payload"):
            await shared.run("submit_graph", graph, "default", None, said)
    with pytest.raises(InvalidInputError):
        read_plan(json.loads(said) | {"tasks": [{"task_type": "noop"}]})
    assert await fetch(shared, "select from grns.workflows") == []


async def test_wrong_arguments_are_named(client: Client) -> None:
    with pytest.raises(InvalidInputError, match="say which pool runs"):
        grns.Escalate("call_a_human")
    with pytest.raises(InvalidInputError, match="priority"):
        grns.Escalate("call_a_human", pool="ops", priority=9)
    with pytest.raises(ValidationError, match="one of each"):
        grns.Failures(count=1, then=["pause", "cancel"])
    large = grns.Escalate("call_a_human", {"text": "x" * 300_000}, pool="ops")
    with pytest.raises(InvalidInputError, match="fail_after: the payload"):
        client.workflow("import", fail_after=grns.Failures(count=1, then=large))


async def test_escalation_that_cannot_be_submitted_is_refused_by_its_table(
    shared: Database, client: Client
) -> None:
    run = await submitted(client)
    with pytest.raises(Exception, match="workflows_escalation"):
        await fetch(
            shared, 'update grns.workflows set escalation = \'{"task_type": "a b"}\' where id = $1', run.id
        )
