"""Mail between agents over HTTP."""

from __future__ import annotations

import asyncio
import time
from uuid import uuid4

from grns.api.route import PREFIX
from tests.support.api import Door, good, problem_of

PROFILE = {"agent_type": "worker"}
MAIL = f"{PREFIX}/mail"
BOX = f"{PREFIX}/agents/coder/mail"


async def test_mail_is_sent_handed_out_and_acknowledged(door: Door) -> None:
    async with door.visitor(await door.key("work")) as agent, door.visitor(await door.key("read")) as reader:
        assert problem_of(await agent.post(MAIL, json={"type": "hello", "to": "coder"}), 404) == "not_found"
        good(await agent.put(f"{PREFIX}/agents/coder", json=PROFILE))
        said = {
            "type": "hello",
            "to": "coder",
            "sender": "planner",
            "about": "gr-1",
            "message_id": str(uuid4()),
        }
        for _ in range(2):
            assert good(await agent.post(MAIL, json=said))["message_id"] == said["message_id"]
        (mail,) = good(await agent.post(f"{BOX}/poll", json={}))["items"]
        assert (mail["id"], mail["from_agent"], mail["deliveries"]) == (said["message_id"], "planner", 1)
        assert problem_of(await reader.post(f"{BOX}/poll", json={}), 403) == "forbidden"
        assert problem_of(await agent.post(f"{BOX}/ack", json={}), 400) == "bad_ack"
        assert good(await agent.post(f"{BOX}/ack", json={"ids": [mail["id"]]})) == {"acked": 1}
        assert good(await agent.post(f"{BOX}/ack", json={"ids": [mail["id"]]})) == {"acked": 0}
        assert good(await agent.post(f"{BOX}/poll", json={}))["items"] == []
        (listed,) = good(await reader.get(MAIL, params={"about": "gr-1"}))["items"]
        assert listed["acked_at"] is not None
        assert good(await reader.get(MAIL, params={"text": "never said"}))["items"] == []
        assert problem_of(await reader.get(MAIL, params={"text": "rep*"}), 400) == "bad_text"


async def test_a_poll_waits_for_mail(door: Door) -> None:
    async with door.visitor(await door.key("work")) as agent:
        good(await agent.put(f"{PREFIX}/agents/coder", json=PROFILE))
        asking = asyncio.create_task(agent.post(f"{BOX}/poll", json={"wait_seconds": 20}))
        await asyncio.sleep(0.2)
        began_at = time.monotonic()
        good(await agent.post(MAIL, json={"type": "hello", "to": "coder"}))
        assert len(good(await asking)["items"]) == 1
        assert time.monotonic() - began_at < 3


async def test_what_cannot_be_sent(door: Door) -> None:
    async with door.visitor(await door.key("work")) as agent:
        good(await agent.put(f"{PREFIX}/agents/coder", json=PROFILE))
        for wrong in (
            {"type": "a b"},
            {"type": "x", "to": "a b"},
            {"type": "x", "payload": []},
            {"kind": "x"},
        ):
            assert problem_of(await agent.post(MAIL, json=wrong), 400) == "bad_message"
        large = {"type": "x", "to": "coder", "payload": {"a": "x" * 300_000}}
        assert problem_of(await agent.post(MAIL, json=large), 413) == "too_large"
