"""Waiting for some of the tasks, with a time limit; and tasks that wait for each other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import grns
from grns.client.client import Client
from grns.errors import GrnsError
from grns.postgres.database import Database
from tests.support.attempts import Attempts, attempts_of
from tests.support.followers import follow
from tests.support.harness import submit
from tests.support.store import cancel, fall_due, fetch, redrive, row_of
from tests.workflows.test_control import redriven

POOL = grns.Pool("worker", non_retryable=(GrnsError,))
ANSWERS: list[tuple[list[str], list[str]]] = []


@POOL.task
async def offer(number: dict[str, Any]) -> int:
    if number.get("is_bad"):
        raise grns.Fail("no offer")
    return int(number["number"])


@POOL.task("noop")
async def choose(payload: dict[str, Any], ctx: grns.Context) -> None:
    offers = await ctx.fan_out("offers", offer, [{"number": number} for number in range(3)])
    done, others = await ctx.wait(offers, count=payload.get("count"), timeout=payload.get("timeout"))
    ANSWERS.append(([one.id for one in done], [one.id for one in others]))
    if payload.get("breaks") and len(ANSWERS) == 1:
        raise ConnectionError("once")


@POOL.task
async def join(payload: dict[str, Any], ctx: grns.Context) -> None:
    handles: list[grns.TaskHandle[Any]] = [ctx.client.handle(task_id) for task_id in payload["tasks"]]
    if "count" in payload:
        await ctx.wait(handles, count=payload["count"])
    else:
        await ctx.join(handles)


@POOL.task
async def wait_and_join(payload: dict[str, Any], ctx: grns.Context) -> None:
    await ctx.wait([ctx.client.handle(task_id) for task_id in payload["first"]], count=1)
    await ctx.join([ctx.client.handle(task_id) for task_id in payload["then"]])


@pytest.fixture
def attempts(shared: Database, client: Client) -> Iterator[Attempts]:
    ANSWERS.clear()
    with attempts_of(POOL, shared, client) as attempts:
        yield attempts


async def offers(database: Database) -> list[str]:
    rows = await fetch(
        database, "select id from grns.tasks where task_type = 'offer' order by payload ->> 'number'"
    )
    return [row["id"] for row in rows]


async def status(database: Database, task_id: str) -> str:
    return str((await row_of(database, task_id))["status"])


async def promote(database: Database) -> None:
    await database.run("promote", 100, None)


async def test_a_task_goes_on_with_the_first(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared, payload={"count": 1})
    assert await attempts.run(task.id) == "waiting"
    first, second, third = await offers(shared)
    await attempts.run(second)
    await follow(shared)
    assert await status(shared, task.id) == "queued"
    assert await attempts.run(task.id) == "succeeded"
    assert [([second], [first, third])] == ANSWERS


async def test_what_had_ended_is_recorded(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared, payload={"count": 1, "breaks": True})
    assert await attempts.run(task.id) == "waiting"
    first, second, third = await offers(shared)
    await attempts.run(third)
    await follow(shared)
    assert await attempts.run(task.id) == "retry_wait"
    await attempts.run(first)
    await fall_due(shared, task.id)
    assert await attempts.run(task.id) == "succeeded"
    assert [([third], [first, second])] * 2 == ANSWERS


async def test_a_task_that_fails_has_ended(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared, payload={})
    await attempts.run(task.id)
    ids = await offers(shared)
    await fetch(shared, """update grns.tasks set payload = '{"is_bad": true}' where id = $1""", ids[1])
    for task_id in ids:
        await attempts.run(task_id)
    await follow(shared)
    assert await attempts.run(task.id) == "succeeded"
    assert [(ids, [])] == ANSWERS


async def test_the_time_limit_is_kept(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared, payload={"count": 2, "timeout": 600})
    assert await attempts.run(task.id) == "waiting"
    due = (await row_of(shared, task.id))["next_attempt_at"]
    ids = await offers(shared)
    await attempts.run(ids[0])
    await follow(shared)
    assert await status(shared, task.id) == "waiting"
    await shared.run("pause_tasks", [task.id], "default", "ann", None)
    await shared.run("resume_tasks", [task.id], "default", "ann", None)
    await follow(shared)
    row = await row_of(shared, task.id)
    assert (row["status"], row["waits_for"], row["next_attempt_at"]) == ("waiting", "tasks", due)
    await promote(shared)
    assert await status(shared, task.id) == "waiting"
    await fetch(shared, "update grns.steps set value = jsonb_build_object('until', 1) where kind = 'sleep'")
    await fall_due(shared, task.id)
    await promote(shared)
    assert await status(shared, task.id) == "queued"
    await follow(shared)
    assert await attempts.run(task.id) == "succeeded"
    assert [([ids[0]], ids[1:])] == ANSWERS


async def test_an_attempt_before_the_time_waits_again_until_then(
    attempts: Attempts, shared: Database
) -> None:
    task = await submit(shared, payload={"timeout": timedelta(hours=1).total_seconds()})
    assert await attempts.run(task.id) == "waiting"
    due = (await row_of(shared, task.id))["next_attempt_at"]
    await fall_due(shared, task.id)
    await promote(shared)
    assert await attempts.run(task.id) == "waiting"
    assert (await row_of(shared, task.id))["next_attempt_at"] == due


@pytest.mark.parametrize("timeout", [0, -1])
async def test_without_time_nothing_is_waited_for(
    attempts: Attempts, shared: Database, timeout: float
) -> None:
    task = await submit(shared, payload={"timeout": timeout})
    assert await attempts.run(task.id) == "succeeded"
    assert [([], await offers(shared))] == ANSWERS


@pytest.mark.parametrize("count", [-1, 4])
async def test_a_count_of_more_than_all_is_refused(attempts: Attempts, shared: Database, count: int) -> None:
    task = await submit(shared, payload={"count": count})
    assert await attempts.run(task.id) == "failed"
    assert "a count of up to all of the tasks" in (await row_of(shared, task.id))["last_error"]


async def test_a_task_that_joins_itself_fails(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared, "join", payload={"tasks": []})
    await fetch(
        shared,
        "update grns.tasks set payload = jsonb_build_object('tasks', array[id]) where id = $1",
        task.id,
    )
    assert await attempts.run(task.id) == "failed"
    assert "dependency_cycle" in (await row_of(shared, task.id))["last_error"]


async def chain(database: Database, count: int) -> list[str]:
    """Return tasks of which each joins the next one, and the last one the first."""
    ids = [(await submit(database, "join", payload={"tasks": []})).id for _ in range(count)]
    for one, other in zip(ids, ids[1:] + ids[:1], strict=True):
        await fetch(
            database,
            "update grns.tasks set payload = jsonb_build_object('tasks', array[$2::text]) where id = $1",
            one,
            other,
        )
    return ids


@pytest.mark.parametrize("length", [2, 4])
async def test_the_last_one_of_a_cycle_fails(attempts: Attempts, shared: Database, length: int) -> None:
    *others, last = await chain(shared, length)
    for task_id in others:
        assert await attempts.run(task_id) == "waiting"
    await follow(shared)
    assert await attempts.run(last) == "failed"
    assert "dependency_cycle" in (await row_of(shared, last))["last_error"]
    await follow(shared)
    assert await attempts.run(others[-1]) == "dead" or "TaskFailedError" in str(
        (await row_of(shared, others[-1]))["last_error"]
    )


async def test_tasks_that_join_each_other_at_the_same_moment(attempts: Attempts, shared: Database) -> None:
    """Neither sees that the other one waits: the follower does, and one of them runs, and fails."""
    one, other = await chain(shared, 2)
    asked = attempts.executor.finishes._database

    class Late:
        def __getattr__(self, name: str) -> Any:
            return getattr(asked, name)

        async def run(self, name: str, *arguments: Any) -> Any:
            if name == "suspend":
                attempts.executor.finishes._database = asked
                assert await attempts.run(other) == "waiting"
            return await asked.run(name, *arguments)

    attempts.executor.finishes._database = Late()  # type: ignore[assignment]
    assert await attempts.run(one) == "waiting"
    await follow(shared)
    found = {task_id: await status(shared, task_id) for task_id in (one, other)}
    assert "queued" in found.values()
    queued = [task_id for task_id, state in found.items() if state == "queued"]
    for task_id in queued:
        await attempts.run(task_id)
        await follow(shared)
    assert "failed" in {await status(shared, task_id) for task_id in (one, other)}


async def test_a_task_that_needs_not_all_is_in_no_cycle(attempts: Attempts, shared: Database) -> None:
    plain = await submit(shared, "offer", payload={"number": 1})
    one, other = await chain(shared, 2)
    await fetch(
        shared,
        "update grns.tasks set payload = jsonb_build_object('tasks', array[$2::text, $3::text], 'count', 1)"
        " where id = $1",
        one,
        other,
        plain.id,
    )
    assert await attempts.run(one) == "waiting"
    assert await attempts.run(other) == "waiting"
    await follow(shared)
    assert [await status(shared, task_id) for task_id in (one, other)] == ["waiting", "waiting"]
    await attempts.run(plain.id)
    await follow(shared)
    assert await attempts.run(one) == "succeeded"
    await follow(shared)
    assert await attempts.run(other) == "succeeded"


async def test_a_join_is_not_woken_by_what_an_earlier_wait_left_over(
    attempts: Attempts, shared: Database
) -> None:
    first, other, last = [
        (await submit(shared, "offer", payload={"number": number})).id for number in range(3)
    ]
    task = await submit(shared, "wait_and_join", payload={"first": [first, other], "then": [last]})
    assert await attempts.run(task.id) == "waiting"
    await attempts.run(first)
    await follow(shared)
    assert await attempts.run(task.id) == "waiting"
    await attempts.run(other)
    await follow(shared)
    assert await status(shared, task.id) == "waiting"
    await attempts.run(last)
    await follow(shared)
    assert await attempts.run(task.id) == "succeeded"


async def test_a_redriven_task_that_had_been_in_a_cycle_runs(attempts: Attempts, shared: Database) -> None:
    one, other = await chain(shared, 2)
    await attempts.run(one)
    await attempts.run(other)
    await follow(shared)
    await fetch(shared, """update grns.tasks set payload = '{"tasks": []}' where id = $1""", other)
    await redrive(shared, other)
    assert await attempts.run(other) == "succeeded"


async def test_a_task_that_was_submitted_with_needs_is_never_queued_before_them(
    attempts: Attempts, shared: Database
) -> None:
    first = await submit(shared, "join", payload={"tasks": []})
    child = await submit(
        shared, "offer", payload={"number": 1}, needs=({"task": first.id, "outcome": "success"},)
    )
    await fetch(
        shared,
        "update grns.tasks set payload = jsonb_build_object('tasks', array[$2::text]) where id = $1",
        first.id,
        child.id,
    )
    await shared.run("pause_tasks", [child.id], "default", "ann", None)
    assert await attempts.run(first.id) == "waiting"
    await shared.run("resume_tasks", [child.id], "default", "ann", None)
    await follow(shared)
    assert await status(shared, child.id) == "waiting"


async def test_a_wait_that_was_over_is_over_after_a_pause(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared, payload={"timeout": 600})
    assert await attempts.run(task.id) == "waiting"
    await fetch(shared, "update grns.steps set value = jsonb_build_object('until', 1) where kind = 'sleep'")
    await fetch(shared, "update grns.waits set until = now() where task_id = $1", task.id)
    await fall_due(shared, task.id)
    await promote(shared)
    assert await status(shared, task.id) == "queued"
    await shared.run("pause_tasks", [task.id], "default", "ann", None)
    await shared.run("resume_tasks", [task.id], "default", "ann", None)
    await follow(shared)
    await promote(shared)
    assert await attempts.run(task.id) == "succeeded"
    ids = await offers(shared)
    assert [([], ids)] == ANSWERS


async def test_a_time_limit_is_up_to_a_year(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared, payload={"timeout": 1e10})
    assert await attempts.run(task.id) == "failed"
    assert "366 days" in (await row_of(shared, task.id))["last_error"]


async def test_a_time_limit_outlives_a_redrive_of_many(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    task = await submit(shared, payload={"timeout": 600})
    assert await attempts.run(task.id) == "waiting"
    due = (await row_of(shared, task.id))["next_attempt_at"]
    await cancel(shared, task.id)
    await follow(shared)
    await redriven(shared, f"status:cancelled id:{task.id}")
    row = await row_of(shared, task.id)
    assert (row["status"], row["waits_for"], row["next_attempt_at"]) == ("waiting", "tasks", due)
