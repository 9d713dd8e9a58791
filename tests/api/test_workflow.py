"""Workflows over HTTP: created as a whole, listed, shown with their tasks."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from grns.api.route import PREFIX
from grns.model.outcome import Verb
from grns.postgres.database import Database
from tests.support.api import good, problem_of
from tests.support.followers import begin_here, follow
from tests.support.store import claim, fetch, finish

WORKFLOWS = f"{PREFIX}/workflows"


def report(**more: Any) -> dict[str, Any]:
    """Return a workflow whose tasks stand in no order."""
    return {
        "name": "report",
        "tasks": [
            {"name": "write", "task_type": "noop", "needs": ["a", {"task": "b", "outcome": "end"}]},
            {"name": "a", "task_type": "noop"},
            {"name": "b", "task_type": "noop"},
            {"name": "alarm", "task_type": "noop", "on": "failure"},
        ],
        **more,
    }


async def test_a_workflow_from_its_creation_to_its_end(local: httpx2.AsyncClient, shared: Database) -> None:
    await begin_here(shared)
    answer = await local.post(WORKFLOWS, json=report())
    made = good(answer, [201])
    path = f"{WORKFLOWS}/{made['id']}"
    assert answer.headers["location"] == path
    assert set(made["tasks"]) == {"write", "a", "b", "alarm"}
    for name, verb in (("b", Verb.FAIL), ("a", Verb.SUCCEED), ("write", Verb.SUCCEED)):
        await finish(shared, await claim(shared, made["tasks"][name]), verb)
        await follow(shared)
    state = good(await local.get(path))
    assert (state["status"], state["total"], state["open"]) == ("failed", 3, 0)
    assert (state["succeeded"], state["failed"], state["skipped"]) == (2, 1, 0)
    tasks = {one["name"]: one for one in good(await local.get(f"{path}/tasks"))["items"]}
    assert {name: one["status"] for name, one in tasks.items()} == {
        "write": "succeeded", "a": "succeeded", "b": "failed", "noop": "queued",
    }  # fmt: skip
    assert [one["name"] for one in tasks.values() if one["is_last"]] == ["noop"]


async def test_what_a_task_waits_on_is_named(local: httpx2.AsyncClient, shared: Database) -> None:
    made = good(await local.post(WORKFLOWS, json=report()), [201])
    tasks = good(await local.get(f"{WORKFLOWS}/{made['id']}/tasks"))["items"]
    (write,) = [one for one in tasks if one["name"] == "write"]
    assert (write["status"], write["waits_for"], sorted(write["waits_on"])) == (
        "waiting",
        "tasks",
        ["a", "b"],
    )
    assert good(await local.get(f"{PREFIX}/tasks/{write['id']}"))["waits_for"] == "tasks"


async def test_workflow_escalates(local: httpx2.AsyncClient, shared: Database) -> None:
    await begin_here(shared)
    call = {"task_type": "call_a_human", "agent_type": "ops", "payload": {"team": "imports"}}
    answer = await local.post(WORKFLOWS, json=report(fail_after={"count": 1, "then": ["pause", call]}))
    made = good(answer, [201])
    await finish(shared, await claim(shared, made["tasks"]["a"]), Verb.FAIL)
    await follow(shared)
    state = good(await local.get(f"{WORKFLOWS}/{made['id']}"))
    assert state["paused_by"] == "grns"
    task = good(await local.get(f"{PREFIX}/tasks/{state['escalation_task_id']}"))
    assert (task["task_type"], task["priority"], task["payload"]["team"]) == ("call_a_human", 0, "imports")
    wrong = report(fail_after={"count": 1, "then": {"task_type": "call_a_human", "priority": 7}})
    assert problem_of(await local.post(WORKFLOWS, json=wrong), 400) == "bad_submission"


async def test_workflows_are_listed_by_page_and_status(local: httpx2.AsyncClient, shared: Database) -> None:
    ids = [good(await local.post(WORKFLOWS, json=report(name=f"n{n}")), [201])["id"] for n in range(3)]
    first = good(await local.get(WORKFLOWS, params={"limit": 2}))
    rest = good(await local.get(WORKFLOWS, params={"limit": 2, "cursor": first["next_cursor"]}))
    assert [one["id"] for one in (*first["items"], *rest["items"])] == ids[::-1]
    assert good(await local.get(WORKFLOWS, params={"status": "succeeded"}))["items"] == []
    assert problem_of(await local.get(WORKFLOWS, params={"status": "done"}), 400) == "bad_parameter"


@pytest.mark.parametrize(
    ("tasks", "code"),
    [
        ([], "bad_submission"),
        ([{"name": "a"}], "bad_submission"),
        ([{"task_type": "noop"}, {"task_type": "noop"}], "bad_submission"),
        ([{"task_type": "noop", "needs": ["nothing"]}], "unknown_need"),
        ([{"task_type": "noop", "needs": ["not a name"]}], "unknown_need"),
        ([{"task_type": "noop", "on": "end"}], "bad_submission"),
        (
            [
                {"name": "a", "task_type": "noop", "needs": ["b"]},
                {"name": "b", "task_type": "noop", "needs": ["a"]},
            ],
            "dependency_cycle",
        ),
    ],
)
async def test_what_cannot_be_a_workflow_is_refused_as_a_whole(
    local: httpx2.AsyncClient, shared: Database, tasks: list[dict[str, Any]], code: str
) -> None:
    answer = await local.post(WORKFLOWS, json={"name": "wrong", "tasks": tasks})
    assert problem_of(answer, 400) == code
    assert await fetch(shared, "select from grns.tasks") == []


async def test_tasks_that_need_each_other_are_named(local: httpx2.AsyncClient) -> None:
    tasks = [{"name": one, "task_type": "noop", "needs": [other]} for one, other in ("ab", "bc", "ca")]
    answer = await local.post(WORKFLOWS, json={"name": "wrong", "tasks": tasks})
    assert all(name in answer.json()["detail"].partition(": ")[2] for name in "abc")


async def test_a_task_may_need_one_that_exists(local: httpx2.AsyncClient, shared: Database) -> None:
    tasks = f"{PREFIX}/tasks"
    first = good(await local.post(tasks, json={"task_type": "noop"}), [201])["id"]
    wanted = {"task_type": "noop", "needs": [{"task": first}]}
    child = good(await local.post(tasks, json=wanted), [201])["id"]
    assert good(await local.get(f"{tasks}/{child}"))["status"] == "waiting"
    unknown = {"task_type": "noop", "needs": [{"task": "gr-nothing"}]}
    assert problem_of(await local.post(tasks, json=unknown), 400) == "unknown_need"


async def test_a_batch_with_needs_is_created_as_a_whole(local: httpx2.AsyncClient, shared: Database) -> None:
    tasks = f"{PREFIX}/tasks"
    first = good(await local.post(tasks, json={"task_type": "noop"}), [201])["id"]
    wanted = {"task_type": "noop", "needs": [{"task": first}]}
    items = good(await local.post(f"{tasks}/batch", json={"tasks": [{"task_type": "noop"}, wanted]}))["items"]
    assert [one["status"] for one in items] == ["created", "created"]
    unknown = {"task_type": "noop", "needs": [{"task": "gr-nothing"}]}
    batch = {"tasks": [{"task_type": "noop", "idempotency_key": "k"}, unknown]}
    items = good(await local.post(f"{tasks}/batch", json=batch))["items"]
    assert [one["problem"]["code"] for one in items] == ["unknown_need"] * 2
    batch = {"tasks": [{"task_type": "noop", "idempotency_key": "k"}, wanted, {"task_type": "not a name"}]}
    items = good(await local.post(f"{tasks}/batch", json=batch))["items"]
    assert [one["status"] for one in items] == ["problem"] * 3
    rows = await fetch(shared, "select count(*) as found from grns.tasks where idempotency_key = 'k'")
    assert rows[0]["found"] == 0


async def test_a_workflow_that_is_not_there_is_not_found(local: httpx2.AsyncClient) -> None:
    for path in (f"{WORKFLOWS}/wf-nothing", f"{WORKFLOWS}/wf-nothing/tasks"):
        assert problem_of(await local.get(path), 404) == "not_found"


async def test_an_open_workflow_is_extended_and_sealed(local: httpx2.AsyncClient, shared: Database) -> None:
    await begin_here(shared)
    last = {"task_type": "noop", "on": "end", "name": "last"}
    made = good(await local.post(WORKFLOWS, json={"name": "rows", "is_open": True, "tasks": [last]}), [201])
    path = f"{WORKFLOWS}/{made['id']}"
    rows = [{"name": "a", "task_type": "noop"}, {"name": "b", "task_type": "noop", "needs": ["a"]}]
    added = good(await local.post(f"{path}/tasks", json={"tasks": rows}), [201])
    assert set(added["tasks"]) == {"a", "b"}
    assert problem_of(await local.post(f"{path}/tasks", json={"tasks": [last]}), 400) == "bad_submission"
    assert problem_of(await local.post(f"{path}/tasks", json={"tasks": []}), 400) == "bad_submission"
    assert good(await local.post(f"{path}/seal"))["sealed_at"] is not None
    assert problem_of(await local.post(f"{path}/tasks", json={"tasks": rows}), 409) == "conflict"
    missing = f"{WORKFLOWS}/wf-nothing"
    assert problem_of(await local.post(f"{missing}/tasks", json={"tasks": rows}), 404) == "not_found"
    assert problem_of(await local.post(f"{missing}/seal"), 404) == "not_found"
    for name in ("a", "b"):
        await follow(shared)
        await finish(shared, await claim(shared, added["tasks"][name]), Verb.SUCCEED)
    await follow(shared)
    assert (good(await local.get(path))["status"], good(await local.get(path))["total"]) == ("succeeded", 2)
