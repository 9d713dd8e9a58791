"""What a handler over HTTP reports or returns, and cannot be kept, costs one attempt at most."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import grns
from grns.agent.http import AgentHttp
from grns.agent.listener import WakeupListener
from grns.diagnose.task_log import MOST_LINES, read_task_log
from grns.errors import InvalidInputError, OutcomeUnknownError
from grns.model.form import form_of
from grns.model.form_shape import shape_of
from grns.postgres.database import Database
from grns.tasks.read import tasks
from tests.agent.test_client import url as url
from tests.support.api import Door
from tests.support.harness import LIMIT_SECONDS, eventually, submit
from tests.support.store import row_of


@pytest.fixture
async def client(url: str, door: Door) -> AsyncIterator[grns.AgentClient]:
    key = await door.key("work", "read", workspace="default")
    async with grns.AgentClient(url, key=key, task_types=["noop"], lease_seconds=5.0) as found:
        yield found


async def ended(client: grns.AgentClient, shared: Database, handler: Callable[..., Any]) -> dict[str, Any]:
    """Run one task with a handler, and a good one beside it; return the row of the first."""
    made = await submit(shared, max_attempts=1, priority=0)
    good = await submit(shared, max_attempts=1)

    async def work(payload: Any, task: grns.AgentTask) -> Any:
        return await handler(task) if task.id == made.id else "fine"

    running = asyncio.create_task(client.run({"noop": work}, concurrency=2))

    async def have_ended() -> bool:
        rows = [await row_of(shared, one.id) for one in (made, good)]
        return all(row["finished_at"] is not None for row in rows)

    await eventually(have_ended)
    client.stop()
    await asyncio.wait_for(running, LIMIT_SECONDS)
    assert (await row_of(shared, good.id))["status"] == "succeeded"
    return dict(await row_of(shared, made.id))


@pytest.mark.parametrize(
    ("told", "percent"),
    [
        ({"percent": 101}, 100.0), ({"percent": Decimal("1.5")}, 1.5), ({"percent": float("nan")}, None),
        ({"percent": 5, "step": "x" * 300}, 5.0), ({"percent": 5, "remaining": -3}, 5.0),
    ],
    ids=str,
)  # fmt: skip
async def test_reports_are_bounded_as_those_of_a_worker(
    client: grns.AgentClient, shared: Database, told: dict[str, Any], percent: float | None
) -> None:
    async def work(task: grns.AgentTask) -> None:
        task.progress(**told)

    row = await ended(client, shared, work)
    assert row["status"] == "succeeded"
    (found,) = (await tasks(shared, [row["id"]], "default")).values()
    assert found.progress_percent == percent
    assert len(found.current_step or "") <= 255


async def test_a_report_that_is_refused_is_dropped(
    client: grns.AgentClient, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def refuse(*_: Any, **__: Any) -> bool:
        nonlocal asked
        asked += 1
        raise InvalidInputError("bad_renewal", "no")

    monkeypatch.setattr(client, "heartbeat", refuse)

    async def work(task: grns.AgentTask) -> None:
        task.progress(5)
        task.checkpoint(1)

    assert (await ended(client, shared, work))["status"] == "succeeded"
    assert 1 <= asked <= 3


async def test_an_api_that_is_away_holds_up_an_outcome_for_a_moment(
    client: grns.AgentClient, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def away(*_: Any, **__: Any) -> bool:
        nonlocal asked
        asked += 1
        raise grns.UnavailableError("away")

    monkeypatch.setattr(client, "heartbeat", away)

    async def work(task: grns.AgentTask) -> None:
        task.progress(5)

    began = time.monotonic()
    assert (await ended(client, shared, work))["status"] == "succeeded"
    assert asked <= 10
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "result",
    [{"score": float("nan")}, "\ud83d", {"x": {1, 2}}, object()],
    ids=["nan", "half", "set", "object"],
)
async def test_a_result_that_cannot_be_kept_fails_its_attempt_alone(
    client: grns.AgentClient, shared: Database, result: Any
) -> None:
    async def work(_task: grns.AgentTask) -> Any:
        return result

    row = await ended(client, shared, work)
    assert row["status"] in ("failed", "dead")


async def test_a_question_that_cannot_be_asked_fails_its_attempt_alone(
    client: grns.AgentClient, shared: Database
) -> None:
    async def work(task: grns.AgentTask) -> Any:
        return await task.approve("pay", title="Pay?", evidence={"x": "y" * 250_000}, body="z" * 90_000)

    row = await ended(client, shared, work)
    assert row["status"] in ("failed", "dead")


async def test_what_is_done_is_written_although_its_worker_is_cancelled(
    client: grns.AgentClient, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await submit(shared)
    completes, completing = client.complete_task, asyncio.Event()

    async def slowly(task: grns.AgentTask, result: Any = None) -> str:
        completing.set()
        await asyncio.sleep(0.5)
        return await completes(task, result)

    monkeypatch.setattr(client, "complete_task", slowly)

    async def work(_payload: Any) -> int:
        return 17

    running = asyncio.create_task(client.run({"noop": work}))
    await asyncio.wait_for(completing.wait(), LIMIT_SECONDS)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await row_of(shared, made.id))["status"] == "succeeded"


async def test_an_outcome_that_gets_no_answer_is_given_up_with_the_lease(
    client: grns.AgentClient, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submit(shared)

    async def lost(*_: Any, **__: Any) -> str:
        raise OutcomeUnknownError("a page of a proxy")

    monkeypatch.setattr(client, "complete_task", lost)

    async def work(_payload: Any) -> None:
        client.stop()

    began = time.monotonic()
    await asyncio.wait_for(client.run({"noop": work}), LIMIT_SECONDS)
    assert time.monotonic() - began < 12


async def test_a_thread_keeps_its_slot_until_it_has_ended(client: grns.AgentClient, shared: Database) -> None:
    """Nothing can end a thread: with another task in its slot there would be two at a time."""
    ids = [(await submit(shared)).id for _ in range(2)]
    at_work, most, done = 0, 0, threading.Event()
    changing = threading.Lock()

    def work(_payload: Any, task: grns.AgentTask) -> None:
        nonlocal at_work, most
        with changing:
            at_work += 1
            most = max(most, at_work)
        if task.id == ids[0] and task.attempt == 1:
            task.end("cancelled")
            done.wait(1.0)
        with changing:
            at_work -= 1

    running = asyncio.create_task(client.run({"noop": work}))

    async def is_done() -> bool:
        return bool((await row_of(shared, ids[1]))["status"] == "succeeded")

    await eventually(is_done)
    client.stop()
    await asyncio.wait_for(running, LIMIT_SECONDS)
    assert most == 1


# ---------------------------------------------------------------- keys, and what stands before the API


@pytest.mark.parametrize("key", ["", " \n", "a b", "grns_x_secret\nx", "é"], ids=repr)
def test_what_is_no_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(InvalidInputError, match="the key is empty, or has characters") as caught:
        AgentHttp("http://127.0.0.1:1", key=key, workspace=None)
    assert "secret" not in str(caught.value)


async def test_the_end_of_a_line_behind_a_key_does_not_matter(url: str, door: Door, shared: Database) -> None:
    key = await door.key("work", workspace="default")
    made = await submit(shared)
    async with grns.AgentClient(url, key=f"{key}\n", task_types=["noop"]) as client:
        task = await client.next_task(5)
        assert task is not None
        assert task.id == made.id


@contextmanager
def proxy(status: int, body: bytes, kind: str) -> Iterator[str]:
    """Answer all requests in one way."""

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Location", "https://elsewhere/")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "kind", "error"),
    [
        (404, b"<h1>none</h1>", "text/html", OutcomeUnknownError),
        (404, b'{"message": "no Route matched"}', "application/json", OutcomeUnknownError),
        (409, b'{"error": "conflict"}', "application/json", OutcomeUnknownError),
        (502, b"<h1>bad</h1>", "text/html", OutcomeUnknownError),
        (413, b"<h1>too large</h1>", "text/html", InvalidInputError),
        (301, b"", "text/html", InvalidInputError),
        (200, b'{"ok": true}', "application/json", OutcomeUnknownError),
        (200, b"[]", "application/json", OutcomeUnknownError),
    ],
)
async def test_what_a_proxy_says_is_not_taken_for_an_answer(
    status: int, body: bytes, kind: str, error: type[Exception]
) -> None:
    with proxy(status, body, kind) as url:
        async with grns.AgentClient(url, key="k", task_types=["noop"]) as client:
            with pytest.raises(error) as caught:
                await client.next_task(0)
            assert type(caught.value) is error


def test_a_form_has_one_digest_with_pydantic_and_without() -> None:
    schema = {
        "type": "object", "title": "Refund", "additionalProperties": False,
        "properties": {
            "amount": {"type": "number", "examples": [1]}, "why": {"type": "string", "enum": ["late"]},
        },
    }  # fmt: skip
    assert shape_of(schema) == form_of(schema)
    assert shape_of(shape_of(schema)) == shape_of(schema)


# ---------------------------------------------------------------- the listener


@pytest.mark.parametrize("length", ["-1", "x", "99999999999999", "70000"])
async def test_a_wakeup_with_a_wrong_length_is_refused(client: grns.AgentClient, length: str) -> None:
    async with WakeupListener(client) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(f"POST /task HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode())
        await writer.drain()
        answer = await asyncio.wait_for(reader.readline(), LIMIT_SECONDS)
        assert b" 413 " in answer
        writer.close()


async def test_many_connections_take_no_more_threads(client: grns.AgentClient) -> None:
    async with WakeupListener(client) as listener:
        before = threading.active_count()
        held = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(80)]
        await asyncio.sleep(0.5)
        assert threading.active_count() - before <= 110  # a thread, and a timer, for each of fifty
        for one in held:
            one.close()


async def test_what_a_handler_over_http_logs_is_in_the_log_of_its_task(
    client: grns.AgentClient, shared: Database
) -> None:
    async def work(task: grns.AgentTask) -> None:
        log = task.log.bind(shop=7)
        log.info("begins", text="a\x00b", value=object)
        for number in range(450):
            log.info("x" * 5000, number=number, text="é" * 1000)
        task.checkpoint({"rest": "y" * 200_000})
        log.error("ends")

    row = await ended(client, shared, work)
    assert row["status"] == "succeeded"
    lines = await read_task_log(shared, row["id"], workspace="default", limit=MOST_LINES)
    logged = [line for line in lines if line.source == "handler"]
    assert [len(line.message) for line in logged] == [6, *[2000] * 450, 4]
    assert logged[0].fields == {"shop": 7, "text": "a\\x00b", "value": "<class 'object'>"}
    assert [(line.fields or {})["number"] for line in logged[1:-1]] == list(range(450))
    (found,) = (await tasks(shared, [row["id"]], "default")).values()
    assert found.checkpoint_data is not None
