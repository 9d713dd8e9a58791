"""Tools over MCP, called by the official client on a real port."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from mcp import MCPError
from mcp_types import ElicitRequest, ElicitResult
from pydantic import BaseModel

import grns
from grns.api.mcp import server as mcp_server
from grns.api.mcp import task_extension
from grns.api.route import PREFIX
from grns.client.client import Client as GrnsClient
from grns.maintenance.reaper import reap
from grns.postgres.database import Database
from grns.web.app import make_site
from grns.worker.declared import publish_task_types
from tests.mcp.host import WORK, TaskHost, called, host, key, refused, text_of, tools_of
from tests.support.api import Door, good, problem_of, serving
from tests.support.harness import eventually, status_of, submit
from tests.support.store import lapse

MODES: list[dict[str, Any]] = [{}, {"mode": "legacy"}]


READ = {
    "task_wait", "task_show", "task_list", "task_explain", "agent_list", "question_list", "question_show",
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize(
    ("scopes", "tools"),
    [
        (["work"], WORK),
        (["submit"], {"task_submit"}),
        (["read"], READ),
        (["operate"], {"task_cancel"}),
        (["answer", "read"], {"question_answer"} | READ),
        (["admin"], WORK | READ | {"task_submit", "task_cancel", "question_answer"}),
    ],
    ids=["work", "submit", "read", "operate", "answer", "admin"],
)
async def test_the_scopes_of_the_key_decide_which_tools_there_are(
    url: str, door: Door, mode: dict[str, Any], scopes: list[str], tools: set[str]
) -> None:
    async with host(url, await key(door, *scopes), **mode) as client:
        assert await tools_of(client) == tools
        for name in sorted((WORK | READ | {"task_submit"}) - tools):
            assert await client.call_tool(name, {})  # refused for its arguments, or for the key


@pytest.mark.parametrize("shown", [None, "grns_no_key", "x"])
async def test_without_a_key_it_is_closed(url: str, door: Door, shown: str | None) -> None:
    await key(door, "read")
    headers = {} if shown is None else {"Authorization": f"Bearer {shown}"}
    async with httpx2.AsyncClient(headers=headers) as visitor:
        answer = await visitor.post(f"{url}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert problem_of(answer, 401) == "denied"
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_tool_that_the_key_may_not_call_is_refused(url: str, door: Door) -> None:
    async with host(url, await key(door, "read")) as client:
        assert "the scope submit is needed" in await refused(client, "task_submit", task_type="noop")
        with pytest.raises(MCPError, match="there is no tool nothing"):
            await client.call_tool("nothing", {})


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_a_task_is_handed_over_and_worked_on(
    url: str, door: Door, shared: Database, mode: dict[str, Any]
) -> None:
    async with (
        host(url, await key(door, "submit", "read"), **mode) as planner,
        host(url, await key(door, "work"), **mode) as coder,
    ):
        assert (await called(coder, "work_next", task_types=["code"], wait_seconds=0))["task"] is None
        made = await called(
            planner, "task_submit", task_type="code", payload={"title": "a form"},
            title="Build a form", tags=["ui"], metadata={"ticket": 7}, created_by="ann",
        )  # fmt: skip
        assert (made["status"], made["next"]) == ("submitted", "call task_wait for its result")
        (listed,) = (await called(planner, "task_list", filter="tag:ui"))["tasks"]
        assert (listed["id"], listed["title"], listed["tags"]) == (made["task_id"], "Build a form", ["ui"])
        work = await called(coder, "work_next", task_types=["code"], wait_seconds=20)
        assert (work["task"]["id"], work["task"]["payload"]) == (made["task_id"], {"title": "a form"})
        assert work["lease_seconds"] == 600
        waiting = asyncio.create_task(called(planner, "task_wait", task_id=made["task_id"]))
        told = await called(coder, "work_progress", token=work["token"], percent=50, step="tests")
        assert told["cancel_requested"] is False
        seen = await called(planner, "task_wait", task_id=made["task_id"], wait_seconds=0)
        assert (seen["status"], seen["progress_percent"], seen["current_step"]) == ("running", 50, "tests")
        assert await called(coder, "work_done", token=work["token"], result={"commit": "abc"}) == {
            "status": "succeeded"
        }
        assert await waiting == {
            "task_id": made["task_id"], "status": "succeeded", "result": {"commit": "abc"},
        }  # fmt: skip
        (listed,) = (await called(planner, "task_list", filter="status:succeeded"))["tasks"]
        assert listed["id"] == made["task_id"]
        shown = await called(planner, "task_show", task_id=made["task_id"])
        assert (shown["result"], shown["metadata"], shown["created_by"]) == (
            {"commit": "abc"}, {"ticket": 7}, "ann",
        )  # fmt: skip
        assert "succeeded" in (await called(planner, "task_explain", task_id=made["task_id"]))["sentence"]


async def test_a_worker_that_is_gone_loses_its_task(url: str, door: Door, shared: Database) -> None:
    made = await submit(shared)
    async with host(url, await key(door, "work")) as coder:
        lost = await called(coder, "work_next", task_types=["noop"])
        await called(coder, "work_progress", token=lost["token"], checkpoint={"at": 3})
        await lapse(shared, made.id)
        await reap(shared, 10, None)
        again = await called(coder, "work_next", task_types=["noop"])
        assert again["task"]["checkpoint_data"] == {"at": 3}
        assert "stale_token" in await refused(coder, "work_done", token=lost["token"], result=1)
        assert (await called(coder, "work_release", token=again["token"]))["status"] == "queued"
        failed = await called(coder, "work_next", task_types=["noop"])
        ended = await called(coder, "work_fail", token=failed["token"], message="no", retry=False)
        assert ended["status"] == "failed"


async def test_arguments_that_do_not_fit_are_explained(url: str, door: Door) -> None:
    async with host(url, await key(door, "admin")) as client:
        assert "task_type" in await refused(client, "task_submit", type="noop")
        assert "wait_seconds" in await refused(client, "task_wait", task_id="gr-1", wait_seconds=60)
        assert "not_found" in await refused(client, "task_wait", task_id="gr-1", wait_seconds=0)
        assert "bad_filter" in await refused(client, "task_list", filter="status:")
        assert "bad_token" in await refused(client, "work_done", token="nonsense")


async def test_a_person_is_asked_and_the_work_goes_on(url: str, door: Door, shared: Database) -> None:
    made = await submit(shared)
    form = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
    asked = {"name": "refund", "title": "Refund?", "form": form}
    async with (
        host(url, await key(door, "work")) as coder,
        host(url, await key(door, "answer", "read")) as person,
    ):
        work = await called(coder, "work_next", task_types=["noop"])
        assert (await called(coder, "work_ask", token=work["token"], **asked))["status"] == "waiting"
        (question,) = (await called(person, "question_list"))["questions"]
        assert (question["title"], question["task_id"]) == ("Refund?", made.id)
        shown = await called(person, "question_show", question_id=question["id"])
        answer = {"question_id": question["id"], "digest": shown["digest"], "answer": {"amount": "x"}}
        assert "bad_answer" in await refused(person, "question_answer", **answer)
        await called(person, "question_answer", **{**answer, "answer": {"amount": 9.5}})
        again = await called(coder, "work_next", task_types=["noop"])
        found = await called(coder, "work_ask", token=again["token"], **asked)
        assert found["value"]["answer"] == {"amount": 9.5}
        await called(coder, "work_done", token=again["token"])
    assert await status_of(shared, made.id) == "succeeded"


async def test_mail_is_read_until_it_is_acknowledged(url: str, door: Door, client: GrnsClient) -> None:
    await client.agents.put("reviewer", pool="worker")
    async with host(url, await key(door, "work")) as one:
        await called(one, "message_send", type="review_request", to="reviewer", payload={"branch": "b"})
        for _ in range(2):
            (mail,) = (await called(one, "message_read", agent="reviewer"))["items"]
            assert (mail["type"], mail["payload"]) == ("review_request", {"branch": "b"})
        assert await called(one, "message_ack", agent="reviewer", ids=[mail["id"]]) == {"acked": 1}
        assert (await called(one, "message_read", agent="reviewer"))["items"] == []
        assert "not_found" in await refused(one, "message_send", type="x", to="none")
    async with host(url, await key(door, "read")) as reader:
        (agent,) = (await called(reader, "agent_list"))["agents"]
        assert (agent["name"], agent["health"]) == ("reviewer", "absent")


async def test_a_long_result_is_cut(
    url: str, door: Door, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_server, "_LONGEST_TEXT", 100)
    made = await submit(shared, payload={"text": "x" * 200})
    async with host(url, await key(door, "read")) as client:
        answer = await client.call_tool("task_show", {"task_id": made.id})
    assert answer.structured_content is None
    assert "characters in all" in text_of(answer)
    assert len(text_of(answer)) < 200


# ---------------------------------------------------------------- published task types

pool = grns.Pool("desk")


class Refund(BaseModel):
    """What to refund."""

    order: str
    amount: float


@pool.task(publish=True)
async def refund(what: Refund) -> dict[str, Any]:
    """Refund an order."""
    return {"refunded": what.amount}


@pool.task
async def secret(_payload: dict[str, Any]) -> None: ...


async def published(shared: Database) -> None:
    """Publish what a worker of the pool publishes when it starts."""
    await publish_task_types(shared, pool.handlers.values(), workspace="default", agent_type="desk")


async def worked(url: str, shown: str, result: Any, *, fails: bool = False) -> None:
    """Work on one task of the pool."""
    async with host(url, shown) as coder:
        work = await called(coder, "work_next", task_types=["refund"], pool="desk", wait_seconds=20)
        if fails:
            await called(coder, "work_fail", token=work["token"], message="no money", retry=False)
        else:
            await called(coder, "work_done", token=work["token"], result=result)


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_a_published_task_type_is_a_tool(
    url: str, door: Door, shared: Database, mode: dict[str, Any]
) -> None:
    await published(shared)
    async with host(url, await key(door, "submit", "read"), **mode) as client:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert "secret" not in tools
        assert tools["refund"].description == "Refund an order."
        assert tools["refund"].input_schema["required"] == ["order", "amount"]
        working = asyncio.create_task(worked(url, await key(door, "work"), {"refunded": 5}))
        answer = await called(client, "refund", order="1", amount=5)
        await working
        assert (answer["status"], answer["result"]) == ("succeeded", {"refunded": 5})


@pytest.mark.parametrize("takes_tasks", [False, True])
async def test_a_key_that_may_not_read_hears_that_its_task_was_submitted(
    url: str, door: Door, shared: Database, takes_tasks: bool
) -> None:
    """Who is told of an error submits again, and the order is refunded twice."""
    await published(shared)
    extensions = [TaskHost(never)] if takes_tasks else []
    async with host(url, await key(door, "submit"), extensions=extensions) as client:
        for call in (
            {"name": "refund", "order": "1", "amount": 5},
            {"name": "task_submit", "task_type": "refund", "pool": "desk", "wait_seconds": 5},
        ):
            made = await called(client, str(call.pop("name")), **call)
            assert made["status"] == "submitted"
            assert made["next"].startswith("do not submit it again; its result cannot be read: the scope")
            assert await status_of(shared, made["task_id"]) == "queued"


async def test_a_published_task_that_fails_is_an_error_of_its_tool(
    url: str, door: Door, shared: Database
) -> None:
    await published(shared)
    async with host(url, await key(door, "submit", "read")) as client:
        working = asyncio.create_task(worked(url, await key(door, "work"), None, fails=True))
        told = json.loads(await refused(client, "refund", order="1", amount=5))
        await working
        assert (told["status"], told["error"]["message"]) == ("failed", "no money")
        seen = await called(client, "task_wait", task_id=told["task_id"])  # the tool did what it is for
        assert seen["status"] == "failed"


async def never(_request: ElicitRequest) -> ElicitResult:
    """Be asked nothing."""
    raise AssertionError


@pytest.mark.parametrize("fails", [False, True])
async def test_a_host_that_takes_tasks_gets_one(url: str, door: Door, shared: Database, fails: bool) -> None:
    await published(shared)
    extension = TaskHost(never)
    async with host(url, await key(door, "submit", "read"), extensions=[extension]) as client:
        calling = asyncio.create_task(client.call_tool("refund", {"order": "1", "amount": 5}))

        async def is_working() -> bool:
            return "working" in extension.statuses

        await eventually(is_working)
        await worked(url, await key(door, "work"), {"refunded": 5}, fails=fails)
        answer = await calling
    assert extension.statuses == ["working", "completed"]
    assert answer.is_error is fails
    said = json.loads(text_of(answer))
    assert said == answer.structured_content
    assert said["message"] == "no money" if fails else said == {"refunded": 5}


async def test_a_question_of_a_task_is_a_form_of_the_host(url: str, door: Door, shared: Database) -> None:
    await published(shared)
    asked: list[str] = []

    async def ask(request: ElicitRequest) -> ElicitResult:
        asked.append(request.params.message)
        return ElicitResult(action="accept", content={"amount": 4})

    extension = TaskHost(ask)
    form = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
    told = {"name": "amount", "title": "How much?", "body": "It was 5.", "form": form}
    async with (
        host(url, await key(door, "submit", "read", "answer"), extensions=[extension]) as client,
        host(url, await key(door, "work")) as coder,
    ):
        calling = asyncio.create_task(client.call_tool("refund", {"order": "1", "amount": 5}))
        order = {"task_types": ["refund"], "pool": "desk", "wait_seconds": 20}
        work = await called(coder, "work_next", **order)
        await called(coder, "work_ask", token=work["token"], **told)
        again = await called(coder, "work_next", **order)
        found = await called(coder, "work_ask", token=again["token"], **told)
        await called(coder, "work_done", token=again["token"], result=found["value"]["answer"])
        answer = await calling
    assert asked == ["How much?\n\nIt was 5."]
    assert answer.structured_content == {"amount": 4}
    assert "input_required" in extension.statuses
    assert extension.statuses[-1] == "completed"


@pytest.mark.parametrize(
    ("kind", "response", "answer"),
    [
        ("question", {"action": "accept", "content": {"amount": 1}}, {"amount": 1}),
        ("question", {"action": "decline"}, None),
        ("question", {"action": "cancel"}, None),
        ("approval", {"action": "decline"}, {"approved": False}),
        ("approval", {"action": "cancel"}, None),
        ("approval", {"action": "accept"}, None),
        ("approval", "yes", None),
    ],
    ids=str,
)
def test_what_a_person_does_with_a_form(kind: str, response: Any, answer: Any) -> None:
    assert task_extension._answer({"kind": kind}, response) == answer


async def test_a_host_cancels_a_task(url: str, door: Door, shared: Database) -> None:
    await published(shared)
    extension = TaskHost(never, cancels=True)
    scopes = ("submit", "read", "operate")
    async with host(url, await key(door, *scopes), extensions=[extension]) as client:
        answer = await client.call_tool("refund", {"order": "1", "amount": 5})
    assert answer.is_error
    assert extension.statuses == ["working", "cancelled"]


async def test_any_replica_answers(door: Door, shared: Database) -> None:
    await published(shared)
    extension = TaskHost(never)
    shown = await key(door, "submit", "read")
    other = Door(shared)
    async with serving(other.context, make_site(other.context)) as second:
        async with (
            serving(door.context, make_site(door.context)) as first,
            host(first.url, shown) as client,
        ):
            task = await called(client, "task_submit", task_type="refund", pool="desk", payload={})
        async with host(second.url, shown, extensions=[extension]) as client:
            assert (await called(client, "task_show", task_id=task["task_id"]))["status"] == "queued"


async def test_what_a_key_may_do(door: Door) -> None:
    async with door.visitor(await door.key("work", "read")) as visitor:
        said = good(await visitor.get(f"{PREFIX}/me"))
    assert (said["workspace"], said["all_workspaces"], said["scopes"]) == ("acme", False, ["read", "work"])
    async with door.visitor(await door.root()) as visitor:
        assert len(good(await visitor.get(f"{PREFIX}/me"))["scopes"]) == 7


# ---------------------------------------------------------------- what a review found


async def test_what_was_claimed_is_shown_whole(url: str, door: Door, shared: Database) -> None:
    """An error, or half of it, would cost the attempt: the token would be gone."""
    text = "x" * 200_000
    made = await submit(shared, payload={"text": text})
    async with host(url, await key(door, "work")) as coder:
        work = await called(coder, "work_next", task_types=["noop"])
        await called(coder, "work_progress", token=work["token"], checkpoint={"text": text})
        await lapse(shared, made.id)
        await reap(shared, 10, None)
        again = await called(coder, "work_next", task_types=["noop"])
        assert (again["task"]["payload"], again["task"]["checkpoint_data"]) == (
            {"text": text},
            {"text": text},
        )


async def test_an_answer_counts_for_what_was_asked(url: str, door: Door, shared: Database) -> None:
    await submit(shared)
    async with (
        host(url, await key(door, "work")) as coder,
        host(url, await key(door, "answer", "read")) as person,
    ):
        work = await called(coder, "work_next", task_types=["noop"])
        await called(coder, "work_ask", token=work["token"], name="pay", title="Pay 10 euro?")
        (asked,) = (await called(person, "question_list"))["questions"]
        shown = await called(person, "question_show", question_id=asked["id"])
        assert list(shown)[:6] == ["id", "task_id", "kind", "title", "digest", "form"]
        yes = {"question_id": asked["id"], "digest": shown["digest"], "answer": {"approved": True}}
        await called(person, "question_answer", **yes)
        again = await called(coder, "work_next", task_types=["noop"])
        more = {"token": again["token"], "name": "pay", "title": "Pay 10,000 euro?"}
        told = await called(coder, "work_ask", **more)
        assert told["status"] == "waiting", "it is asked anew"
        (asked,) = (await called(person, "question_list"))["questions"]
        shown = await called(person, "question_show", question_id=asked["id"])
        assert shown["title"] == "Pay 10,000 euro?"
        await called(person, "question_answer", **{**yes, "digest": shown["digest"]})
        last = await called(coder, "work_next", task_types=["noop"])
        more["token"] = last["token"]
        assert (await called(coder, "work_ask", **more))["value"]["answer"] == {"approved": True}
        assert "another question" in await refused(coder, "work_ask", **{**more, "title": "Pay all?"})


async def test_there_are_no_streams(url: str, door: Door) -> None:
    headers = {"Authorization": f"Bearer {await key(door, 'read')}", "Accept": "text/event-stream"}
    async with httpx2.AsyncClient(headers=headers, timeout=5) as visitor:
        for method in ("GET", "DELETE"):
            assert (await visitor.request(method, f"{url}/mcp")).status_code == 405


@pytest.mark.parametrize("wrong", ["../tasks/gr-1", "../keys", "x"])
async def test_a_question_is_named_by_its_id(url: str, door: Door, wrong: str) -> None:
    async with host(url, await key(door, "admin")) as client:
        assert "question_id" in await refused(client, "question_show", question_id=wrong)


async def test_who_does_not_wait_any_more_claims_nothing(url: str, door: Door, shared: Database) -> None:
    headers = {"Authorization": f"Bearer {await key(door, 'work')}", "Accept": "application/json"}
    call = {"name": "work_next", "arguments": {"task_types": ["noop"], "wait_seconds": 20}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    async with httpx2.AsyncClient(headers=headers, timeout=1) as visitor:
        with pytest.raises(httpx2.ReadTimeout):
            await visitor.post(f"{url}/mcp", json=body)
    await asyncio.sleep(0.5)
    made = await submit(shared)
    await asyncio.sleep(1.5)
    assert await status_of(shared, made.id) == "queued"
