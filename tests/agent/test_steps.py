"""Steps of HTTP workers: a recorded one never runs again, and a wait gives the task back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

import grns
from grns.agent.task import AgentTask
from grns.api.route import PREFIX
from grns.client.client import Client
from grns.maintenance.reaper import reap
from grns.maintenance.scheduler import promote
from grns.model.question import TaskQuestion
from grns.postgres.database import Database
from grns.worker.steps import MOST_BYTES
from tests.support.api import Door, good, problem_of, serving
from tests.support.harness import LIMIT_SECONDS, submit
from tests.support.store import cancel, fall_due, fetch, kinds_of, lapse, row_of

RUNS: list[str] = []


class Trip(BaseModel):
    city: str


async def book(city: str) -> Trip:
    RUNS.append(city)
    return Trip(city=city)


@pytest.fixture
async def worker(door: Door) -> AsyncIterator[grns.AgentClient]:
    RUNS.clear()
    async with (
        serving(door.context, door.api) as server,
        grns.AgentClient(
            server.url, key=await door.key("work", workspace="default"), task_types=["noop"], name="test"
        ) as found,
    ):
        yield found


async def taken(worker: grns.AgentClient) -> AgentTask:
    task = await worker.next_task(LIMIT_SECONDS)
    assert task is not None
    return task


async def the_question(client: Client) -> TaskQuestion:
    (found,) = (await client.questions.list()).rows
    return await client.questions.get(found.id)


async def test_a_recorded_step_never_runs_again(worker: grns.AgentClient, shared: Database) -> None:
    made = await submit(shared, max_attempts=1)
    for number in (1, 2):
        async with await taken(worker) as task:
            trip = await task.step("réserver ✈", book, "Linz")
            assert trip == Trip(city="Linz")
            if number == 1:
                raise ConnectionError
            task.result = trip.city
        if number == 1:
            await fall_due(shared, made.id)
            await promote(shared, 10, None)
    assert RUNS == ["Linz"]
    row = await row_of(shared, made.id)
    assert (row["status"], row["result"], row["uncounted_attempts"]) == ("succeeded", '"Linz"', 1)


async def test_a_sleep_gives_the_task_back(worker: grns.AgentClient, shared: Database) -> None:
    made = await submit(shared, max_attempts=1)
    async with await taken(worker) as task:
        await task.step("book", book, "Linz")
        await task.sleep(timedelta(days=3))
        raise AssertionError("not reached")
    assert task.status == "waiting"
    row = await row_of(shared, made.id)
    assert (row["status"], row["waits_for"], row["owner_agent_id"]) == ("waiting", "time", None)
    await fetch(shared, "update grns.steps set value = '{\"until\": 0}' where kind = 'sleep'")
    await fall_due(shared, made.id)
    await promote(shared, 10, None)
    async with await taken(worker) as task:
        await task.step("book", book, "Linz")
        await task.sleep(timedelta(days=3))
        task.result = "awake"
    assert (await row_of(shared, made.id))["result"] == '"awake"'
    assert RUNS == ["Linz"]


async def test_a_signal_and_an_answer_are_waited_for(
    worker: grns.AgentClient, shared: Database, client: Client
) -> None:
    made = await submit(shared)

    async def attempt() -> AgentTask:
        async with await taken(worker) as task:
            signal = await task.wait_for_signal("go")
            answer = await task.ask_person("where", Trip, title="Where to?", evidence={"n": 1.0})
            approval = await task.approve("pay", title=f"Pay for {answer.value.city}?")
            task.result = [signal, answer.value.city, answer.comment, approval.value]
        return task

    assert (await attempt()).status == "waiting"
    assert await client.signal(made.id, "go", {"n": 1}) == "woken"
    assert (await attempt()).status == "waiting"
    question = await the_question(client)
    await client.questions.answer(question.id, {"city": "Graz"}, digest=question.digest, comment="nice")
    assert (await attempt()).status == "waiting"
    question = await the_question(client)
    assert question.title == "Pay for Graz?"
    await client.questions.answer(question.id, {"approved": True}, digest=question.digest)
    assert (await attempt()).status == "succeeded"
    assert (await row_of(shared, made.id))["result"] == '[{"n": 1}, "Graz", "nice", true]'


async def test_a_time_out_is_a_step_too(worker: grns.AgentClient, shared: Database) -> None:
    made = await submit(shared)
    async with await taken(worker) as task:
        await task.wait_for_signal("go", timeout=60)
    await fetch(shared, "update grns.signal_waits set until = now()")
    await fall_due(shared, made.id)
    await promote(shared, 10, None)
    async with await taken(worker) as task:
        with pytest.raises(grns.WaitTimeoutError):
            await task.wait_for_signal("go", timeout=60)
        task.result = 1
    assert task.status == "succeeded"


async def test_a_wait_of_a_task_that_is_to_be_cancelled_cancels_it(
    worker: grns.AgentClient, shared: Database
) -> None:
    made = await submit(shared)
    task = await taken(worker)
    await cancel(shared, made.id)
    async with task:
        await task.sleep(60)
    assert task.status == "cancelled"
    assert (await kinds_of(shared, made.id))[-1] == "evt.task.cancelled"


async def test_an_attempt_that_has_lost_its_task_records_nothing(
    worker: grns.AgentClient, shared: Database
) -> None:
    made = await submit(shared)
    task = await taken(worker)
    await lapse(shared, made.id)
    await reap(shared, 10, None)
    with pytest.raises(grns.LeaseLostError):
        await task.step("book", book, "Linz")
    assert not await fetch(shared, "select from grns.steps")


# ---------------------------------------------------------------- without the SDK


async def claimed(local: httpx2.AsyncClient) -> str:
    answer = await local.post(f"{PREFIX}/queue/claim", json={"task_types": ["noop"], "wait_seconds": 1.0})
    token: str = good(answer)["token"]
    return token


async def test_what_another_language_sends(local: httpx2.AsyncClient, shared: Database) -> None:
    made = await submit(shared)
    token = await claimed(local)

    async def told(path: str, **said: Any) -> httpx2.Response:
        return await local.post(f"{PREFIX}/queue/{path}", json={"token": token, **said})

    assert good(await told("steps")) == {"items": []}
    assert good(await told("step", name="plan", value=[1, 2])) == {"value": [1, 2]}
    assert good(await told("step", name="plan", value=[3])) == {"value": [1, 2]}, "the first value stays"
    assert good(await told("steps"))["items"] == [
        {"name": "plan", "kind": "step", "value": [1, 2], "seconds": None}
    ]
    assert good(await told("signal", step="wait", signal="go")) == {"value": None}
    for wrong in (
        {}, {"step": "w"}, {"step": "w", "signal": "g", "question": {"title": "t", "kind": "approval"}},
        {"step": "w", "question": {"title": "t"}}, {"step": "w", "seconds": -1.0},
    ):  # fmt: skip
        assert problem_of(await told("suspend", **wrong), 400) == "bad_step"
    said = {"step": "wait", "seconds": 60.0}
    assert good(await told("suspend", **said)) == {"status": "waiting"}
    assert good(await told("suspend", **said)) == {"status": "waiting"}, "its answer may have been lost"
    assert problem_of(await told("step", name="late", value=1), 409) == "stale_token"
    assert (await row_of(shared, made.id))["status"] == "waiting"


async def test_a_task_has_so_many_steps_only(local: httpx2.AsyncClient, shared: Database) -> None:
    made = await submit(shared)
    token = await claimed(local)
    await fetch(
        shared,
        "insert into grns.steps (task_id, name, workspace, kind, value, attempt)"
        " select $1, 'n' || n, 'default', 'step', to_jsonb(repeat('x', $2::int)), 1"
        " from generate_series(1, 128) as n",
        made.id,
        MOST_BYTES // 128,
    )
    answer = await local.post(f"{PREFIX}/queue/step", json={"token": token, "name": "one", "value": 1})
    assert problem_of(answer, 400) == "too_many_steps"
