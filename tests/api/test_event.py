"""Events over HTTP: page by page as far as the log is settled, and as a stream that can be resumed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from grns.api import event_tail as tail
from grns.api import stream
from grns.api.route import PREFIX
from grns.outbox import events as event
from grns.postgres.database import Database
from grns.worker.claims import dispatch
from tests.support import api as kit
from tests.support.aggregators import begin_here, count_all
from tests.support.api import Door, good, problem_of
from tests.support.harness import submit, submit_many
from tests.support.store import cancel, claim, fetch, finish, stranger

EVENTS = f"{PREFIX}/events"
STREAM = {"Accept": "text/event-stream"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for the log's end each time."""
    monkeypatch.setattr(tail, "_FRESH_SECONDS", 0.0)
    monkeypatch.setattr(stream, "_PAUSE_SECONDS", 0.02)


@pytest.fixture
async def settled(door: Door) -> Door:
    """A log that is counted up to here."""
    await begin_here(door.database)
    return door


async def test_events_are_told_up_to_where_the_log_is_settled(
    settled: Door, local: httpx2.AsyncClient, shared: Database
) -> None:
    ids = await submit_many(shared, 3)
    assert good(await local.get(EVENTS))["items"] == [], "nobody has looked yet whether something is missing"
    await count_all(shared)
    found = good(await local.get(EVENTS, params={"kind": "evt.task.*"}))
    assert [row["task_id"] for row in found["items"]] == ids[::-1]
    assert {row["kind"] for row in found["items"]} == {"evt.task.queued"}
    assert found["items"][0]["payload"]["task_type"] == "noop"
    assert await dispatch(shared, ids[0], uuid4())
    await count_all(shared)
    commands = good(await local.get(EVENTS, params={"kind": "cmd.task.execute", "task_id": ids[0]}))["items"]
    assert [row["task_id"] for row in commands] == [ids[0]], "one that was sent again"


async def test_what_commits_late_is_not_left_out(
    settled: Door, local: httpx2.AsyncClient, shared: Database
) -> None:
    """As long as a number is missing, nothing behind it is told: whoever reads on misses nothing."""
    async with stranger(shared) as connection:
        await connection.execute("select grns.submit_task('late')")
        await submit(shared, "early")
        await count_all(shared)
        asked = {"kind": "evt.task.queued", "order": "oldest"}
        page = good(await local.get(EVENTS, params=asked))
        assert page["items"] == []
        await connection.execute("commit")
    await count_all(shared)
    rest = good(await local.get(EVENTS, params={**asked, "cursor": page["next_cursor"]}))
    assert [row["payload"]["task_type"] for row in rest["items"]] == ["late", "early"]


@pytest.mark.parametrize("order", ["latest", "oldest"])
async def test_pages_follow_each_other_however_far_apart_the_rows_are(
    settled: Door, local: httpx2.AsyncClient, shared: Database, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event, "MOST_LOOKED_AT", 7)
    ids = await submit_many(shared, 10)
    await submit_many(shared, 30, workspace="other")
    ids += await submit_many(shared, 5)
    await count_all(shared)
    end = (await event.bounds(shared)).settled
    seen: list[str] = []
    asked: dict[str, str] = {"kind": "evt.task.queued", "order": order, "limit": "4"}
    for _ in range(200):
        page = good(await local.get(EVENTS, params=asked))
        assert len(page["items"]) <= 4
        seen += [row["task_id"] for row in page["items"]]
        if page["next_cursor"] in (None, str(end)):
            break
        asked["cursor"] = page["next_cursor"]
    assert seen == (ids if order == "oldest" else ids[::-1])


@pytest.mark.parametrize("order", ["latest", "oldest"])
async def test_a_page_is_no_longer_than_can_be_kept(
    settled: Door, local: httpx2.AsyncClient, shared: Database, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is in the rows: the one with which it is too long is its last."""
    monkeypatch.setattr(event, "MOST_BYTES", 300)
    ids = await submit_many(shared, 9)
    await count_all(shared)
    end = (await event.bounds(shared)).settled
    seen: list[str] = []
    asked: dict[str, str] = {"kind": "evt.task.queued", "order": order, "limit": "100"}
    for _ in range(20):
        page = good(await local.get(EVENTS, params=asked))
        seen += [row["task_id"] for row in page["items"]]
        if page["next_cursor"] in (None, str(end)):
            break
        assert 0 < len(page["items"]) < 9
        assert page["is_partial"]
        asked["cursor"] = page["next_cursor"]
    assert seen == (ids if order == "oldest" else ids[::-1])


@pytest.mark.parametrize(("limit", "most_bytes"), [(1, 10**6), (100, 1), (3, 10**6), (100, 10**6)])
async def test_a_history_has_pages_too(
    local: httpx2.AsyncClient, shared: Database, limit: int, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event, "MOST_BYTES", most_bytes)
    task_id = (await submit(shared)).id
    await finish(shared, await claim(shared, task_id))
    seen: list[str] = []
    asked: dict[str, str] = {"limit": str(limit)}
    for _ in range(10):
        page = good(await local.get(f"{PREFIX}/tasks/{task_id}/events", params=asked))
        seen += [row["kind"] for row in page["items"]]
        if page["next_cursor"] is None:
            break
        asked["cursor"] = page["next_cursor"]
    assert seen == ["evt.task.queued", "evt.task.claimed", "evt.task.completed"]
    (attempt,) = good(await local.get(f"{PREFIX}/tasks/{task_id}/attempts"))["items"]
    assert (attempt["attempt"], attempt["outcome"]) == (1, "succeeded")
    asked["cursor"] = "x"
    answer = await local.get(f"{PREFIX}/tasks/{task_id}/events", params=asked)
    assert problem_of(answer, 400) == "bad_cursor"


async def test_one_task_is_followed(settled: Door, local: httpx2.AsyncClient, shared: Database) -> None:
    one, _ = await submit_many(shared, 2)
    await cancel(shared, one)
    await count_all(shared)
    rows = good(await local.get(EVENTS, params={"task_id": one}))["items"]
    assert [row["kind"] for row in rows] == ["evt.task.cancelled", "evt.task.queued"]


async def test_a_last_event_id_goes_with_a_stream(local: httpx2.AsyncClient) -> None:
    answer = await local.get(EVENTS, headers={"Last-Event-ID": "3"})
    assert problem_of(answer, 400) == "bad_parameter"


# ---------------------------------------------------------------- streams


@asynccontextmanager
async def serving(door: Door) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve on a real port, and lend somebody who asks there."""
    async with (
        kit.serving(door.context, door.api) as server,
        httpx2.AsyncClient(base_url=server.url, headers=await door.shown(), timeout=20.0) as visitor,
    ):
        yield visitor


@asynccontextmanager
async def following(
    visitor: httpx2.AsyncClient, *, after: str | None = None, **params: str
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Open a stream, and lend what it tells."""
    headers = STREAM if after is None else {**STREAM, "Last-Event-ID": after}
    async with visitor.stream("GET", EVENTS, headers=headers, params=params) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _told(answer.aiter_lines())


async def _told(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
    fields: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            data = json.loads(fields["data"])
            assert (fields["id"], fields["event"]) == (str(data["seq"]), data["kind"])
            yield data
            fields = {}


async def next_of(told: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
    """Return what is told next."""
    async with asyncio.timeout(20):
        return await anext(told)


async def test_a_stream_tells_what_happens_and_goes_on_where_it_was_cut(
    settled: Door, shared: Database
) -> None:
    await submit(shared, "before")
    await count_all(shared)
    async with serving(settled) as visitor:
        async with following(visitor, kind="evt.task.queued") as told:
            first = (await submit(shared, "first", payload={"text": "a\u2028b\nc"})).id
            await count_all(shared)
            seen = await next_of(told)
            assert seen["task_id"] == first
        missed = await submit_many(shared, 3)
        await count_all(shared)
        async with following(visitor, kind="evt.task.queued", after=str(seen["seq"])) as told:
            assert [(await next_of(told))["task_id"] for _ in range(3)] == missed


async def test_a_stream_says_how_far_it_is_when_nothing_happens(
    settled: Door, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_SILENCE_SECONDS", 0.05)
    async with serving(settled) as visitor:
        params = {"kind": "evt.pool.*"}
        async with visitor.stream("GET", EVENTS, headers=STREAM, params=params) as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == "retry: 1000"
            await submit(shared)
            await count_all(shared)
            end = (await event.bounds(shared)).settled
            async with asyncio.timeout(20):
                async for line in lines:
                    if line == f"id: {end}":
                        break


async def test_streams_end_with_the_server_and_their_places_are_free_again(settled: Door) -> None:
    async with serving(settled) as visitor, following(visitor) as told:
        settled.context.stopping.set()
        async with asyncio.timeout(20):
            assert [one async for one in told] == []
    assert settled.context.tail.readers._of_actor.total() == 0


@pytest.mark.parametrize("most", ["most", "most_of_one"])
async def test_too_many_streams_are_refused(settled: Door, most: str) -> None:
    setattr(settled.context.tail.readers, most, 1)
    async with serving(settled) as visitor, following(visitor):
        answer = await visitor.get(EVENTS, headers=STREAM)
        assert problem_of(answer, 429) == "too_many_requests"
        assert answer.headers["retry-after"] == "1"


async def test_a_reader_of_a_workspace_sees_nothing_of_others(settled: Door, shared: Database) -> None:
    ours = (await submit(shared, workspace="acme")).id
    await submit(shared, workspace="rival")
    await count_all(shared)
    async with settled.visitor(await settled.key("read")) as visitor:
        rows = good(await visitor.get(EVENTS, params={"kind": "evt.task.*"}))["items"]
    assert [row["task_id"] for row in rows] == [ours]
    assert await fetch(shared, "select from grns.events where workspace = 'rival'")
