"""Usage over HTTP: told with a renewal, or by an HTTP worker; read with the scope `read`."""

from __future__ import annotations

import grns
from grns.api.route import PREFIX
from tests.support.api import OURS, Door, good, problem_of, serving
from tests.support.harness import submit


async def test_a_renewal_tells_what_was_used(door: Door) -> None:
    task_id = (await submit(door.database, workspace=OURS)).id
    async with door.visitor(await door.key("work")) as agent, door.visitor(await door.key("read")) as reader:
        claim = {"task_types": ["noop"], "agent": "a"}
        token = good(await agent.post(f"{PREFIX}/queue/claim", json=claim))["token"]
        used = [
            {"item": "draft", "model": "gpt-4o-mini", "input_tokens": 1_000_000},
            {"item": "gpu", "cost": 0.5},
        ]
        for _ in range(2):
            good(await agent.post(f"{PREFIX}/queue/renew", json={"token": token, "usage": used}))
        items = good(await reader.get(f"{PREFIX}/tasks/{task_id}/usage"))["items"]
        assert {one["item"]: (one["cost"], one["cost_source"]) for one in items} == {
            "draft": (0.15, "priced"), "gpu": (0.5, "reported"),
        }  # fmt: skip
        (row,) = good(await reader.get(f"{PREFIX}/usage", params={"by": "type"}))["items"]
        assert (row["task_type"], row["items"], row["cost"], row["day"]) == ("noop", 2, 0.65, None)
        assert problem_of(await reader.get(f"{PREFIX}/usage", params={"by": "month"}), 400) == "bad_parameter"
        assert problem_of(await reader.get(f"{PREFIX}/tasks/gr-no/usage"), 404) == "not_found"
        for wrong in ({"item": ""}, {"item": "a", "cost": -1}, {"item": "a", "more": 1}, {"model": "m"}):
            refused = await agent.post(f"{PREFIX}/queue/renew", json={"token": token, "usage": [wrong]})
            assert problem_of(refused, 400) in ("bad_usage", "bad_renewal"), wrong


async def test_an_http_worker_tells_it_before_the_outcome(door: Door) -> None:
    task_id = (await submit(door.database, workspace=OURS)).id
    key = await door.key("work", "read")
    async with (
        serving(door.context, door.api) as server,
        grns.AgentClient(server.url, key=key, task_types=["noop"]) as client,
    ):
        task = await client.next_task()
        assert task is not None
        async with task:
            task.usage("draft", input_tokens=3)
            task.usage("draft", input_tokens=4)
    async with door.visitor(key) as reader:
        (item,) = good(await reader.get(f"{PREFIX}/tasks/{task_id}/usage"))["items"]
    assert (item["item"], item["input_tokens"], item["cost_source"]) == ("draft", 3, "none")
