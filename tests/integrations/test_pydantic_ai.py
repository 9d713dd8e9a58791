"""pydantic-ai on grns: model and tools run once over all attempts, and an approval outlives its worker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import RequestInput
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import grns
from grns.client.client import Client
from grns.integrations.pydantic_ai import GrnsDurability, ask_people, run_agent
from grns.maintenance.scheduler import promote
from grns.postgres.database import Database
from tests.support.attempts import Attempts, attempts_of
from tests.support.harness import submit
from tests.support.store import fall_due, fetch, row_of

CALLS: Counter[str] = Counter()
FAILS: list[str] = []
TIMEOUT = timedelta(minutes=5)


def once(place: str) -> None:
    if place in FAILS:
        FAILS.remove(place)
        raise ConnectionError(place)


async def model(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Look at the weather twice at a time, refund, and say how it went."""
    number = sum(isinstance(message, ModelResponse) for message in messages)
    once(f"model {number}")
    CALLS[f"model {number}"] += 1
    if number == 0:
        return ModelResponse(parts=[ToolCallPart("weather", {"city": city}) for city in ("Linz", "Graz")])
    if number == 1:
        return ModelResponse(parts=[ToolCallPart("refund", {"euro": 5}, tool_call_id="call-1")])
    answer: Any = messages[-1].parts[0]
    return ModelResponse(parts=[TextPart(f"done: {answer.content}")])


def made(*capabilities: Any) -> Agent[None, str]:
    agent = Agent(FunctionModel(model), name="support", capabilities=[GrnsDurability(), *capabilities])

    @agent.tool_plain
    def weather(city: str) -> str:
        once(f"weather {city}")
        CALLS[f"weather {city}"] += 1
        return "sunny"

    @agent.tool_plain(requires_approval=True)
    def refund(euro: int) -> str:
        CALLS["refund"] += 1
        return f"refunded {euro}"

    return agent


ASKING = made(ask_people(to=["role:support"], timeout=TIMEOUT))
SIGNALLED = made(RequestInput(lambda _run, _requests, token: TOKENS.append(token)))
TOKENS: list[str] = []
POOL = grns.Pool("worker", backoff=grns.Backoff(base_seconds=0.001, max_seconds=0.001))


@POOL.task("noop")
async def answer(ticket: dict[str, Any], ctx: grns.Context) -> str:
    agent = SIGNALLED if ticket.get("is_signalled") else ASKING
    return str((await run_agent(ctx, agent, "go")).output)


@pytest.fixture
def attempts(shared: Database, client: Client) -> Iterator[Attempts]:
    CALLS.clear()
    FAILS.clear()
    TOKENS.clear()
    with attempts_of(POOL, shared, client) as attempts:
        yield attempts


async def the_question(client: Client) -> Any:
    (found,) = (await client.questions.list()).rows
    return await client.questions.get(found.id)


async def result(database: Database, task_id: str) -> Any:
    return json.loads((await row_of(database, task_id))["result"])


ONCE = {"model 0": 1, "weather Linz": 1, "weather Graz": 1, "model 1": 1, "refund": 1, "model 2": 1}


async def test_an_approval_waits_for_a_person(attempts: Attempts, client: Client, shared: Database) -> None:
    task = await submit(shared, max_attempts=1)
    assert await attempts.run(task.id) == "waiting"
    question = await the_question(client)
    assert (question.title, question.evidence, question.asked_of) == (
        "Call refund?", {"euro": 5}, ["role:support"],
    )  # fmt: skip
    await client.questions.answer(question.id, {"approved": True}, digest=question.digest)
    assert await attempts.run(task.id) == "succeeded"
    assert await result(shared, task.id) == "done: refunded 5"
    assert CALLS == ONCE


@pytest.mark.parametrize("place", ["model 0", "weather Linz", "weather Graz", "model 1", "model 2"])
async def test_model_and_tools_run_once_wherever_an_attempt_breaks_off(
    attempts: Attempts, client: Client, shared: Database, place: str
) -> None:
    FAILS.append(place)
    task = await submit(shared, max_attempts=2)
    status = await attempts.run(task.id)
    while status != "succeeded":
        if status == "retry_wait":
            await fall_due(shared, task.id)
        else:
            question = await the_question(client)
            await client.questions.answer(question.id, {"approved": True}, digest=question.digest)
        status = await attempts.run(task.id)
    assert CALLS == ONCE
    assert not FAILS


async def test_a_refusal_reaches_the_model(attempts: Attempts, client: Client, shared: Database) -> None:
    task = await submit(shared)
    await attempts.run(task.id)
    question = await the_question(client)
    await client.questions.answer(
        question.id, {"approved": False}, digest=question.digest, comment="too expensive"
    )
    assert await attempts.run(task.id) == "succeeded"
    assert await result(shared, task.id) == "done: too expensive"
    assert CALLS["refund"] == 0


async def test_the_model_hears_that_no_decision_came(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    task = await submit(shared)
    await attempts.run(task.id)
    await fetch(shared, "update grns.signal_waits set until = now()")
    await fetch(shared, "update grns.questions set due_at = now()")
    await fall_due(shared, task.id)
    await promote(shared, 10, None)
    assert await attempts.run(task.id) == "succeeded"
    assert "No decision" in await result(shared, task.id)


async def test_a_signal_resolves_what_another_program_was_told_of(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    task = await submit(shared, payload={"is_signalled": True})
    assert await attempts.run(task.id) == "waiting"
    assert [f"{task.id}.1"] == TOKENS
    assert await client.signal(task.id, TOKENS[0], {"approvals": {"call-1": True}}) == "woken"
    assert await attempts.run(task.id) == "succeeded"
    assert await result(shared, task.id) == "done: refunded 5"
    assert CALLS == ONCE


async def test_elsewhere_the_agent_runs_as_usual() -> None:
    CALLS.clear()
    agent = Agent(FunctionModel(model), name="plain", capabilities=[GrnsDurability()])

    @agent.tool_plain
    def weather(city: str) -> str:
        return city

    @agent.tool_plain
    def refund(euro: int) -> str:
        return f"refunded {euro}"

    assert (await agent.run("go")).output == "done: refunded 5"
