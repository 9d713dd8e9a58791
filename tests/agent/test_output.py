"""What HTTP workers stream, and who watches over HTTP: the same chunks, fenced by the same attempts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest

import grns
from grns.agent.task import AgentTask
from grns.api import output as api_output
from grns.api.route import PREFIX
from grns.bootstrap.app import App
from grns.dev.servers.nats import LocalNats
from grns.gateway.outputs import HttpOutputs
from grns.maintenance.scheduler import promote
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.tasks.output import OutputHub
from tests.support.api import OURS, Door, good, problem_of, serving
from tests.support.harness import LIMIT_SECONDS, settings_for, submit
from tests.support.store import fall_due, fetch


@pytest.fixture
async def transport(door: Door, broker: LocalNats) -> AsyncIterator[JetStream]:
    """A real broker for what is streamed in workspace `ours`."""
    transport = App(settings_for(door.database.url, broker.url)).transport("test")
    await transport.connect()
    await transport.provision_outputs()
    door.context.outputs = OutputHub(door.database, transport)
    door.context.agent_outputs = HttpOutputs(transport, emit=door.emitted.receive)
    yield transport
    await door.context.outputs.close()
    await transport.close()


@pytest.fixture
async def url(door: Door, transport: JetStream) -> AsyncIterator[str]:
    async with serving(door.context, door.api) as server:
        yield server.url


@pytest.fixture
async def worker(url: str, door: Door) -> AsyncIterator[grns.AgentClient]:
    async with grns.AgentClient(url, key=await door.key("work"), task_types=["noop"], name="test") as found:
        yield found


@pytest.fixture
async def reader(url: str, door: Door) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"Authorization": f"Bearer {await door.key('read')}"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=LIMIT_SECONDS) as found:
        yield found


async def taken(worker: grns.AgentClient) -> AgentTask:
    task = await worker.next_task(LIMIT_SECONDS)
    assert task is not None
    return task


async def watched(
    reader: httpx2.AsyncClient, task_id: str, **headers: str
) -> list[tuple[str, str | None, dict[str, Any]]]:
    """Return the events of a task up to its end: event, id and data."""
    found: list[tuple[str, str | None, dict[str, Any]]] = []
    async with asyncio.timeout(LIMIT_SECONDS):
        async with reader.stream("GET", f"{PREFIX}/tasks/{task_id}/stream", headers=headers) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            fields: dict[str, str] = {}
            async for line in answer.aiter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                    continue
                if "event" in fields:
                    found.append((fields["event"], fields.get("id"), json.loads(fields["data"])))
                fields = {}
    return found


def text_of(events: list[tuple[str, str | None, dict[str, Any]]]) -> str:
    text = ""
    for name, _, data in events:
        text = "" if name == "reset" else text + (data["data"] if data.get("kind") == "text" else "")
    return text


async def test_what_a_worker_streams_is_watched(
    worker: grns.AgentClient, reader: httpx2.AsyncClient, shared: Database
) -> None:
    made = await submit(shared, workspace=OURS)
    watching = asyncio.create_task(watched(reader, made.id))
    async with await taken(worker) as task:
        for word in ("one ", "two "):
            task.stream(word)
            await asyncio.sleep(0.15)
        task.stream({"query": "a"}, kind="tool_call")
        task.stream("line\nand \u2028 more")
    events = await watching
    assert text_of(events) == "one two line\nand \u2028 more"
    assert events[-1] == ("end", None, {"attempt": 1, "status": "succeeded"})
    (call,) = [data for _, _, data in events if data.get("kind") == "tool_call"]
    assert call == {"attempt": 1, "number": 3, "kind": "tool_call", "data": {"query": "a"}}
    again = await watched(reader, made.id, **{"Last-Event-ID": "1.2"})
    assert [id_ for _, id_, _ in again if id_] == ["1.3", "1.4"]


async def test_a_wait_goes_on_and_a_failure_begins_anew(
    worker: grns.AgentClient, reader: httpx2.AsyncClient, shared: Database
) -> None:
    made = await submit(shared, workspace=OURS, max_attempts=5)
    for number in range(3):
        async with await taken(worker) as task:
            if number == 0:
                task.stream("plan, ")
                await task.sleep(timedelta(days=3))
            task.stream(f"report {number}")
            await task.sleep(timedelta(days=3))
            if number == 1:
                raise ConnectionError
        if number < 2:
            await fetch(shared, "update grns.steps set value = '{\"until\": 0}' where kind = 'sleep'")
            await fall_due(shared, made.id)
            await promote(shared, 10, None)
    events = await watched(reader, made.id)
    assert text_of(events) == "plan, report 2"


async def test_an_attempt_that_is_over_streams_nothing(
    door: Door, worker: grns.AgentClient, reader: httpx2.AsyncClient, shared: Database
) -> None:
    made = await submit(shared, workspace=OURS)
    task = await taken(worker)
    await worker.complete_task(task, 1)
    said = {"token": task.token, "first": 1, "chunks": [{"data": "late"}]}
    async with door.visitor(await door.key("work")) as visitor:
        assert problem_of(await visitor.post(f"{PREFIX}/queue/stream", json=said), 409) == "stale_token"
    assert text_of(await watched(reader, made.id)) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": 0}, {"first": 2**60}, {"chunks": [{"data": "x"}] * 101}, {"chunks": [{}]},
        {"chunks": [{"data": "x", "kind": "grns.suspended"}]}, {"chunks": [{"data": "x" * 20_000}]},
        {"chunks": [{"data": ["x" * 70_000]}]}, {"is_suspended": 1},
    ],
)  # fmt: skip
async def test_what_is_wrong_is_refused(
    door: Door, worker: grns.AgentClient, shared: Database, wrong: dict[str, Any]
) -> None:
    await submit(shared, workspace=OURS)
    task = await taken(worker)
    said = {"token": task.token, "first": 1, "chunks": [], **wrong}
    async with door.visitor(await door.key("work")) as visitor:
        assert (await visitor.post(f"{PREFIX}/queue/stream", json=said)).status_code in (400, 413)


async def test_a_server_without_broker_says_what_it_sent(
    door: Door, worker: grns.AgentClient, transport: JetStream, shared: Database
) -> None:
    await submit(shared, workspace=OURS)
    task = await taken(worker)
    said = {"token": task.token, "first": 1, "chunks": [{"data": "a"}, {"data": "b"}]}
    async with door.visitor(await door.key("work")) as visitor:
        assert good(await visitor.post(f"{PREFIX}/queue/stream", json=said)) == {"sent": 2}
        await transport.close()
        assert good(await visitor.post(f"{PREFIX}/queue/stream", json=said)) == {"sent": 0}


async def test_a_stream_ends_with_its_time_and_begins_again_where_it_was(
    worker: grns.AgentClient, reader: httpx2.AsyncClient, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_output, "_LONGEST_SECONDS", 0.5)
    monkeypatch.setattr(api_output, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(api_output, "_SILENCE_SECONDS", 0.1)
    made = await submit(shared, workspace=OURS)
    async with await taken(worker) as task:
        task.stream("one ")
        first = await watched(reader, made.id)
        assert first[-1][0] != "end"
        task.stream("two")
    last = [id_ for _, id_, _ in first if id_][-1]
    assert text_of(first) == "one "
    assert text_of(await watched(reader, made.id, **{"Last-Event-ID": last})) == "two"


async def test_who_may_not_watch(door: Door, reader: httpx2.AsyncClient, shared: Database) -> None:
    theirs = await submit(shared, workspace="default")
    path = f"{PREFIX}/tasks/{theirs.id}/stream"
    assert problem_of(await reader.get(path), 404) == "not_found"
    assert problem_of(await reader.get(f"{path}?after=x"), 400) == "bad_parameter"
    async with door.visitor(await door.key("work")) as visitor:
        assert (await visitor.get(path)).status_code == 403


async def test_much_at_once_and_what_comes_while_it_is_posted(
    worker: grns.AgentClient, reader: httpx2.AsyncClient, shared: Database
) -> None:
    made = await submit(shared, workspace=OURS)
    watching = asyncio.create_task(watched(reader, made.id))
    async with await taken(worker) as task:
        task.stream("x" * 700_000)
        task.stream("half \ud83d\x00")
        await asyncio.sleep(0.12)  # it is posted now
        task.stream("soon")
        for _ in range(6):
            task.stream(["y" * 60_000])
        await asyncio.sleep(0.5)
        assert not task._publisher._waiting
    events = await watching
    assert text_of(events) == "x" * 700_000 + "half \ufffd\ufffd" + "soon"
    assert sum(data.get("kind") == "json" for _, _, data in events) == 6
    assert [name for name, _, _ in events if name not in ("state", "chunk")] == ["end"]
