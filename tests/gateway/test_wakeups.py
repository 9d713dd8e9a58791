"""Wakeups: a hint to agents that do not wait, on a real port, and nothing that depends on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from grns.api.route import PREFIX
from grns.client.client import Client
from grns.gateway import wakeups as module
from grns.gateway.wakeups import SpawnTarget, Wakeups
from grns.model import wakeup_url
from grns.postgres.database import Database
from grns.tasks import pauses as pause
from grns.telemetry.task_signals import AgentNudged, NudgeFailed, SessionSpawned
from grns.webhooks.http import HttpSender
from tests.support.api import Door, good, problem_of
from tests.support.harness import LIMIT_SECONDS, eventually, submit
from tests.support.operations import SignalRecorder
from tests.support.store import ACTOR, fetch, log_of


class Bell:
    """An agent's URL, which answers as it is told to."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
        self.port = 0

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What was said there."""
        return [json.loads(one.split(b"\r\n\r\n", 1)[1]) for one in self.heard]

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/task"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request in."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        self.heard.append(head + await reader.readexactly(length))
        writer.write(self.answer)
        await writer.drain()
        writer.close()


def http(timeout_seconds: float = 5.0) -> HttpSender:
    """Return the HTTP client of wakeups."""
    return HttpSender(policy=wakeup_url.POLICY, timeout_seconds=timeout_seconds, agent="grns")


@pytest.fixture
async def bell() -> AsyncIterator[Bell]:
    """An agent that listens."""
    found = Bell()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()
    await server.wait_closed()


@pytest.fixture
async def wakeups(shared: Database, bell: Bell) -> AsyncIterator[tuple[Wakeups, SignalRecorder]]:
    """What wakes agents there, and nowhere else; it looks when it is asked to."""
    emitted = SignalRecorder()
    found = Wakeups(
        database=shared, hosts=wakeup_url.hosts(f"127.0.0.1:{bell.port}"), http=http(), emit=emitted.receive
    )
    yield found, emitted
    await found.close()


async def agent(client: Client, name: str, **profile: Any) -> None:
    """Register an agent."""
    await client.agents.put(name, **({"pool": "worker"} | profile))


async def later(database: Database, seconds: float) -> None:
    """Let all wakeups be so much longer ago."""
    await fetch(database, "update grns.agents set nudged_at = nudged_at - $1 * interval '1 second'", seconds)


async def seen(database: Database, name: str) -> None:
    """Let an agent have been here just now."""
    await fetch(
        database,
        "update grns.agents set agent_id = 'life', started_at = coalesce(started_at, now()),"
        " last_seen_at = clock_timestamp() where name = $1",
        name,
    )


async def took_and_left_another(database: Database, name: str) -> None:
    """Let an agent have been here, and have ended a task; another one waits now."""
    await fetch(
        database,
        "update grns.tasks set status = 'cancelled', queued_at = null, finished_at = now()"
        " where status = 'queued'",
    )
    await submit(database)
    await seen(database, name)
    await later(database, 6)


@pytest.mark.parametrize("is_spawned", [True, False])
async def test_what_is_paused_wakes_nobody(
    client: Client, shared: Database, bell: Bell, wakeups: tuple[Wakeups, SignalRecorder], is_spawned: bool
) -> None:
    found, _ = wakeups
    spawning(found, bell)
    bell.answer = session("session-1")
    await agent(client, "one", **({"coordinator_enabled": True} if is_spawned else {"agent_url": bell.url}))
    await submit(shared)
    await client.pause("worker", task_type="noop")
    await found.tick()
    assert bell.heard == []
    await client.resume("worker", task_type="noop")
    await found.tick()
    assert len(bell.heard) == 1


async def test_who_has_work_is_told_once(
    client: Client, shared: Database, bell: Bell, wakeups: tuple[Wakeups, SignalRecorder]
) -> None:
    found, emitted = wakeups
    await agent(client, "one", agent_url=bell.url)
    await found.tick()
    assert bell.heard == [], "nothing waits"
    await submit(shared)
    await found.tick()
    await found.tick()
    (heard,) = bell.heard
    assert heard.startswith(b"POST /task HTTP/1.1\r\n")
    assert bell.bodies == [{"workspace": "default", "agent_type": "worker", "agent": "one"}]
    assert [signal.host for signal in emitted.of(AgentNudged)] == [f"127.0.0.1:{bell.port}"]
    await later(shared, 29)
    await found.tick()
    assert len(bell.heard) == 1
    await later(shared, 2)
    await found.tick()
    assert len(bell.heard) == 2
    await seen(shared, "one")  # it came, and left the task: perhaps it cannot run it
    await later(shared, 6)
    await found.tick()
    assert len(bell.heard) == 2
    await took_and_left_another(shared, "one")
    await found.tick()
    assert len(bell.heard) == 3


async def test_one_of_several_processes_tells(
    client: Client, shared: Database, bell: Bell, wakeups: tuple[Wakeups, SignalRecorder]
) -> None:
    found, emitted = wakeups
    for n in range(30):
        await agent(client, f"agent-{n}", agent_url=bell.url)
    await submit(shared)
    other = Wakeups(database=shared, hosts=found._hosts, http=http(), emit=emitted.receive)
    for _ in range(3):
        await asyncio.gather(found.tick(), other.tick())
    assert sorted(one["agent"] for one in bell.bodies) == sorted(f"agent-{n}" for n in range(30))


async def test_what_may_not_be_claimed_is_no_reason(
    client: Client, shared: Database, bell: Bell, wakeups: tuple[Wakeups, SignalRecorder]
) -> None:
    found, _ = wakeups
    await agent(client, "one", agent_url=bell.url)
    await submit(shared, agent_type="another")
    await client.submit("noop", {}, pool="worker", agent="one")
    await pause.begin(
        shared, workspace="default", agent_type="worker", task_type=None, actor=ACTOR, reason=None, until=None
    )
    await found.tick()
    assert bell.heard == []


async def test_only_who_may_run_it_is_told(
    client: Client, shared: Database, bell: Bell, wakeups: tuple[Wakeups, SignalRecorder]
) -> None:
    found, _ = wakeups
    for name, capabilities in (("one", ["sql"]), ("two", ["sql", "go"]), ("three", [])):
        await agent(client, name, agent_url=bell.url, capabilities=capabilities)
    await client.submit("noop", {}, pool="worker", requires=["go", "sql"])
    await client.submit("noop", {}, pool="worker", agent="three")
    await client.submit("noop", {}, pool="worker", requires=["rust"])
    await found.tick()
    assert sorted(one["agent"] for one in bell.bodies) == ["three", "two"]


async def test_who_is_full_or_told_to_end_is_not_told(
    client: Client, shared: Database, bell: Bell, wakeups: tuple[Wakeups, SignalRecorder]
) -> None:
    found, _ = wakeups
    for name in ("full", "draining", "dead"):
        await agent(client, name, agent_url=bell.url)
        await seen(shared, name)
    await fetch(shared, "update grns.agents set running = 1 where name in ('full', 'dead')")
    await fetch(shared, "update grns.agents set last_seen_at = now() - interval '1 hour' where name = 'dead'")
    await client.agents.terminate("draining")
    await submit(shared)
    await found.tick()
    assert [one["agent"] for one in bell.bodies] == ["dead"]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"",
        b"\x00\xff rubbish\r\n\r\n",
    ],
    ids=["500", "redirect", "nothing", "rubbish"],
)
async def test_who_does_not_answer_well_is_left_alone_for_longer_and_longer(
    client: Client, shared: Database, bell: Bell, wakeups: tuple[Wakeups, SignalRecorder], answer: bytes
) -> None:
    found, emitted = wakeups
    bell.answer = answer
    await agent(client, "one", agent_url=bell.url)
    await submit(shared)
    for seconds in (0, 60, 120):
        await later(shared, seconds + 1)
        await found.tick()
        await found.tick()
    failed = emitted.of(NudgeFailed)
    assert [signal.pause_seconds for signal in failed] == [60.0, 120.0, 240.0]
    assert not any("/task" in repr(signal) for signal in emitted.seen)
    assert len(bell.heard) == 3


async def test_who_is_not_there_keeps_no_other_from_being_told(
    client: Client, shared: Database, bell: Bell, wakeups: tuple[Wakeups, SignalRecorder]
) -> None:
    found, emitted = wakeups
    found._hosts |= {"127.0.0.1:1"}
    await agent(client, "away", agent_url="http://127.0.0.1:1/task")
    await agent(client, "one", agent_url=bell.url)
    await agent(client, "strange", agent_url="http://169.254.169.254/")
    await submit(shared)
    await found.tick()
    assert [one["agent"] for one in bell.bodies] == ["one"]
    assert sorted(signal.host for signal in emitted.of(NudgeFailed)) == ["", "127.0.0.1:1"]


async def test_one_workspace_leaves_turns_to_others(
    client: Client, shared: Database, bell: Bell, wakeups: tuple[Wakeups, SignalRecorder]
) -> None:
    """M5: however many agents a workspace has, each look has some of the others."""
    found, _ = wakeups
    for n in range(module._AT_ONCE + 5):
        await agent(client, f"agent-{n}", agent_url=bell.url)
    await fetch(
        shared,
        "insert into grns.agents (workspace, name, agent_type, agent_url)"
        " values ('zz', 'theirs', 'worker', $1)",
        bell.url,
    )
    await submit(shared)
    await submit(shared, workspace="zz")
    await found.tick()
    assert len(bell.heard) == module._AT_ONCE
    assert "theirs" in {one["agent"] for one in bell.bodies}


async def test_wakeup_without_response_times_out() -> None:
    left = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with silent:
        port = silent.sockets[0].getsockname()[1]
        to = wakeup_url.POLICY.destination(f"http://127.0.0.1:{port}/")
        assert (await http(0.2).post(to, {}, b"{}")).error == "timeout"
        await asyncio.wait_for(left.wait(), LIMIT_SECONDS)


async def test_agents_have_urls_where_the_operator_lets_them(
    door: Door, local: httpx2.AsyncClient, bell: Bell, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = {"agent_type": "worker", "agent_url": bell.url}
    refused = await local.put(f"{PREFIX}/agents/one", json=profile)
    assert problem_of(refused, 400) == "bad_agent_url"
    assert str(bell.port) not in refused.text
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    wakeups = door.context.agent_claims._nudges
    wakeups._hosts = wakeup_url.hosts(f"127.0.0.1:{bell.port}")
    wakeups.begin()
    good(await local.put(f"{PREFIX}/agents/one", json=profile))
    await submit(door.database)

    async def has_heard() -> bool:
        return bool(bell.heard)

    await eventually(has_heard)
    order = {"task_types": ["noop"], "wait_seconds": 0, "agent": "one"}
    assert good(await local.post(f"{PREFIX}/queue/claim", json=order))["task"]["task_type"] == "noop"


# ---------------------------------------------------------------- sessions


def session(key: str) -> bytes:
    """Return the answer of a spawn URL."""
    body = json.dumps({"session": {"sessionKey": key}}).encode()
    return b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def spawning(wakeups: Wakeups, bell: Bell) -> None:
    """Let sessions be begun there."""
    wakeups._spawn = SpawnTarget(wakeup_url.POLICY.destination(bell.url), SecretStr("s3cret"))


async def test_a_session_is_begun_for_who_is_away(
    client: Client, shared: Database, bell: Bell, wakeups: tuple[Wakeups, SignalRecorder]
) -> None:
    found, emitted = wakeups
    spawning(found, bell)
    bell.answer = session("session-1")
    for name in ("away", "here"):
        await agent(client, name, coordinator_enabled=True)
    await agent(client, "other")
    await seen(shared, "here")
    task = await client.submit("write_code", {"scope": ["a"]}, pool="worker")
    await found.tick()
    (heard,) = bell.heard
    assert b"Authorization: Bearer s3cret\r\n" in heard
    assert bell.bodies == [
        {
            "workspaceId": "default", "agentId": "away", "taskId": task.id,
            "label": f"task:{task.id}:write_code",
            "context": {
                "taskTitle": "write_code", "taskDescription": None, "inputContext": {"scope": ["a"]},
                "checkpointData": None,
            },
        }
    ]  # fmt: skip
    assert (await client.agents.get("away")).session_key == "session-1"
    *_, event = await log_of(shared, task.id)
    said = json.loads(event["payload"])
    assert (event["kind"], said["agent"], said["session_key"]) == (
        "evt.agent.worker.spawned",
        "away",
        "session-1",
    )
    assert [signal.agent for signal in emitted.of(SessionSpawned)] == ["away"]
    assert "s3cret" not in repr(emitted.seen)


async def test_no_more_sessions_are_begun_than_tasks_wait(
    client: Client, shared: Database, bell: Bell, wakeups: tuple[Wakeups, SignalRecorder]
) -> None:
    found, _ = wakeups
    spawning(found, bell)
    bell.answer = session("session-1")
    for number in range(4):
        await agent(client, f"away-{number}", coordinator_enabled=True)
    await submit(shared)
    for tasks, heard in ((0, 1), (0, 1), (1, 2), (5, 4)):
        for _ in range(tasks):
            await submit(shared)
        await found.tick()
        assert len(bell.heard) == heard


async def test_a_session_that_does_not_come_is_asked_for_more_and_more_seldom(
    client: Client, shared: Database, bell: Bell, wakeups: tuple[Wakeups, SignalRecorder]
) -> None:
    found, emitted = wakeups
    spawning(found, bell)
    bell.answer = session("session-1")
    await agent(client, "away", coordinator_enabled=True)
    await submit(shared)
    for seconds, heard in ((0, 1), (59, 1), (2, 2), (119, 2), (2, 3)):
        await later(shared, seconds)
        await found.tick()
        assert len(bell.heard) == heard
    await seen(shared, "away")
    await fetch(shared, "update grns.agents set stopped_at = now()")
    await later(shared, 6)
    await found.tick()
    assert len(bell.heard) == 3, "it came, and left the task: the next session would, too"
    await took_and_left_another(shared, "away")
    await fetch(shared, "update grns.agents set stopped_at = now()")
    await found.tick()
    assert len(bell.heard) == 4, "the next session is begun at once"
    assert emitted.of(NudgeFailed) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"session": {}}',
        b'{"session": {"sessionKey": ""}}',
        b"{",
        b'{"session": {"sessionKey": 1}}',
    ],
)
async def test_an_answer_without_a_session(
    client: Client, shared: Database, bell: Bell, wakeups: tuple[Wakeups, SignalRecorder], body: bytes
) -> None:
    found, emitted = wakeups
    spawning(found, bell)
    bell.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    await agent(client, "away", coordinator_enabled=True)
    await submit(shared)
    await found.tick()
    assert [(one.error, one.pause_seconds) for one in emitted.of(NudgeFailed)] == [("bad_answer", 60.0)]
    assert (await client.agents.get("away")).session_key is None
