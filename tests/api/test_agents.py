"""Agents by name over HTTP: registered, beating, told to end, and refused tasks then."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from grns.api.route import PREFIX
from tests.support.api import OURS, Door, good, problem_of
from tests.support.harness import submit
from tests.support.store import fetch

AGENTS = f"{PREFIX}/agents"
PROFILE = {"agent_type": "worker", "model": "small-1", "capabilities": ["python"], "max_concurrent_tasks": 2}


async def test_an_agent_registers_beats_and_ends(door: Door) -> None:
    async with door.visitor(await door.key("work")) as agent, door.visitor(await door.key("admin")) as person:
        assert problem_of(await agent.post(f"{AGENTS}/coder/heartbeat", json={}), 404) == "not_found"
        made = good(await agent.put(f"{AGENTS}/coder", json=PROFILE))
        assert (made["health"], made["model"], made["max_concurrent_tasks"]) == ("absent", "small-1", 2)
        beat = {"status": "working", "current_task_id": "gr-1", "progress_percent": 12.5, "memory_mb": 40}
        assert good(await agent.post(f"{AGENTS}/coder/heartbeat", json=beat)) == {
            "order": None,
            "reason": None,
        }
        shown = good(await person.get(f"{AGENTS}/coder"))
        assert (shown["health"], shown["status"], shown["progress_percent"]) == ("healthy", "working", 12.5)
        assert [
            one["name"] for one in good(await person.get(AGENTS, params={"capability": "python"}))["items"]
        ] == ["coder"]
        assert problem_of(await agent.post(f"{AGENTS}/coder/terminate", json={}), 403) == "forbidden"
        ordered = good(await person.post(f"{AGENTS}/coder/terminate", json={"reason": "enough"}))
        assert (ordered["order"], ordered["order_reason"]) == ("drain", "enough")
        told = good(await agent.post(f"{AGENTS}/coder/heartbeat", json={"status": "stopped"}))
        assert told == {"order": "drain", "reason": "enough"}
        assert good(await person.get(f"{AGENTS}/coder"))["health"] == "stopped"
        assert good(await person.delete(f"{AGENTS}/coder"))["name"] == "coder"


async def test_what_cannot_be_said(door: Door) -> None:
    async with door.visitor(await door.key("work")) as agent:
        for wrong in ({}, {**PROFILE, "title": "a\nb"}, {**PROFILE, "heartbeat_interval_seconds": 90}):
            assert problem_of(await agent.put(f"{AGENTS}/coder", json=wrong), 400) == "bad_agent"
        good(await agent.put(f"{AGENTS}/coder", json=PROFILE))
        unreadable: list[dict[str, object]] = [
            {"status": "tired"}, {"progress_percent": 101}, {"nonsense": 1}, {"agent_id": "a b"},
        ]  # fmt: skip
        for said in unreadable:
            answer = await agent.post(f"{AGENTS}/coder/heartbeat", json=said)
            assert problem_of(answer, 400) == "bad_heartbeat"


async def test_a_claim_is_a_heartbeat_and_is_refused_to_who_shall_end(door: Door) -> None:
    await submit(door.database, workspace=OURS)
    claim = {"task_types": ["noop"], "agent": "coder", "wait_seconds": 0}
    async with door.visitor(await door.key("work")) as agent, door.visitor(await door.key("admin")) as person:
        good(await agent.put(f"{AGENTS}/coder", json=PROFILE))
        claimed = good(await agent.post(f"{PREFIX}/queue/claim", json=claim))
        shown = good(await person.get(f"{AGENTS}/coder"))
        assert (shown["health"], shown["agent_id"]) == ("healthy", claimed["agent_id"])
        (work,) = good(await person.get(f"{AGENTS}/coder/tasks"))
        assert work["id"] == claimed["task"]["id"]
        good(await person.post(f"{AGENTS}/coder/terminate", json={}))
        door.context.agent_claims._registry._of(OURS, claimed["agent_id"]).noted_at = 0.0
        assert problem_of(await agent.post(f"{PREFIX}/queue/claim", json=claim), 409) == "conflict"
        done = {"token": claimed["token"], "result": 1}
        assert good(await agent.post(f"{PREFIX}/queue/complete", json=done))["status"] == "succeeded"
    await door.context.agent_claims.close()


async def test_a_key_of_one_pool_speaks_for_its_agents_only(door: Door) -> None:
    from grns.access.keys import create_key
    from tests.support.store import ACTOR

    made, _ = await create_key(
        door.database, workspace=OURS, name="pool", scopes=["work"], pools=["other"], actor=ACTOR
    )
    async with door.visitor(await door.key("work")) as agent, door.visitor(made.reveal()) as stranger:
        good(await agent.put(f"{AGENTS}/coder", json=PROFILE))
        assert problem_of(await stranger.put(f"{AGENTS}/mine", json=PROFILE), 403) == "forbidden"
        assert problem_of(await stranger.post(f"{AGENTS}/coder/heartbeat", json={}), 403) == "forbidden"
    assert [row["name"] for row in await fetch(door.database, "select name from grns.agents")] == ["coder"]


async def test_a_key_of_one_agent_is_that_one_only(door: Door) -> None:
    async with door.visitor(await door.key("admin")) as visitor:
        for name in ("coder-1", "coder-2"):
            good(await visitor.put(f"{PREFIX}/agents/{name}", json={"agent_type": "worker"}))
        good(await visitor.post(f"{PREFIX}/mail", json={"type": "hello", "to": "coder-2"}))
        order = {"name": "coder", "scopes": ["work"], "agents": ["coder-1"]}
        key = good(await visitor.post(f"{PREFIX}/keys", json=order))["key"]
    made = await submit(door.database, workspace=OURS)
    async with door.visitor(key) as coder:
        assert good(await coder.get(f"{PREFIX}/me"))["agents"] == ["coder-1"]
        for path, body in (
            ("heartbeat", {}), ("mail/poll", {}), ("mail/ack", {"ids": [str(uuid4())]}),
        ):  # fmt: skip
            good(await coder.post(f"{PREFIX}/agents/coder-1/{path}", json=body))
            other = await coder.post(f"{PREFIX}/agents/coder-2/{path}", json=body)
            assert problem_of(other, 404) == "not_found"
            none = await coder.post(f"{PREFIX}/agents/none/{path}", json=body)
            assert other.json()["detail"].replace("coder-2", "none") == none.json()["detail"]
        profile = {"agent_type": "worker", "capabilities": ["go"]}
        good(await coder.put(f"{PREFIX}/agents/coder-1", json=profile))
        assert problem_of(await coder.put(f"{PREFIX}/agents/coder-2", json=profile), 404) == "not_found"
        claim = {"task_types": ["noop"], "wait_seconds": 0}
        refused = await coder.post(f"{PREFIX}/queue/claim", json=claim | {"agent": "coder-2"})
        assert problem_of(refused, 403) == "forbidden"
        assert good(await coder.post(f"{PREFIX}/queue/claim", json=claim))["task"]["id"] == made.id
        send = {"type": "hello", "to": "coder-2"}
        refused = await coder.post(f"{PREFIX}/mail", json=send | {"sender": "coder-2"})
        assert problem_of(refused, 403) == "forbidden"
        good(await coder.post(f"{PREFIX}/mail", json=send))
        more = {"name": "more", "scopes": ["work"]}
    rows = await fetch(door.database, "select from_agent from grns.mail order by seq")
    assert [row["from_agent"] for row in rows] == [None, "coder-1"]
    (worker,) = await fetch(door.database, "select agent from grns.workers")
    assert worker["agent"] == "coder-1", "a claim without a name is that of the agent"
    async with door.visitor(await door.key("admin")) as visitor:
        bound = good(
            await visitor.post(
                f"{PREFIX}/keys", json={"name": "a", "scopes": ["admin"], "agents": ["coder-1"]}
            )
        )["key"]
    async with door.visitor(bound) as visitor:
        assert problem_of(await visitor.post(f"{PREFIX}/keys", json=more), 403) == "forbidden"
        good(await visitor.post(f"{PREFIX}/keys", json=more | {"agents": ["coder-1"]}))


async def test_many_agents_beat_at_once(door: Door) -> None:
    async with door.visitor(await door.key("admin")) as visitor:
        for name in ("coder-1", "coder-2", "coder-3"):
            good(await visitor.put(f"{AGENTS}/{name}", json=PROFILE))
        beats = [{"name": f"coder-{n}", "status": "working", "agent_id": f"life-{n}"} for n in (1, 2, 9)]
        told = good(await visitor.post(f"{AGENTS}/heartbeats", json={"items": beats}))["items"]
        assert [(one["name"], one["order"]) for one in told] == [("coder-1", None), ("coder-2", None)]
        good(await visitor.post(f"{AGENTS}/coder-2/terminate", json={"reason": "deploy"}))
        told = good(await visitor.post(f"{AGENTS}/heartbeats", json={"items": beats}))["items"]
        assert [(one["order"], one["reason"]) for one in told] == [(None, None), ("drain", "deploy")]
        health = {one["name"]: one["health"] for one in good(await visitor.get(AGENTS))["items"]}
        assert health == {"coder-1": "healthy", "coder-2": "healthy", "coder-3": "absent"}
        wrongs: list[dict[str, Any]] = [{}, {"items": []}, {"items": [{"status": "idle"}]}]
        for wrong in [*wrongs, {"items": [{"name": "a", "x": 1}]}]:
            assert problem_of(await visitor.post(f"{AGENTS}/heartbeats", json=wrong), 400) == "bad_heartbeat"
        bound = good(
            await visitor.post(
                f"{PREFIX}/keys", json={"name": "a", "scopes": ["work"], "agents": ["coder-1"]}
            )
        )
    async with door.visitor(bound["key"]) as coder:
        assert problem_of(await coder.post(f"{AGENTS}/heartbeats", json={"items": beats}), 404) == "not_found"
        good(await coder.post(f"{AGENTS}/heartbeats", json={"items": beats[:1]}))
