"""Events on a page, and as they come: with a session, as far as its key reaches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from grns.api import event_tail as tail
from grns.api import stream
from grns.postgres.database import Database
from tests.support import api as kit
from tests.support.aggregators import begin_here, count_all
from tests.support.api import OURS, THEIRS
from tests.support.harness import submit, submit_many
from tests.support.web import Browser, Hall


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for the log's end each time."""
    monkeypatch.setattr(tail, "_FRESH_SECONDS", 0.0)
    monkeypatch.setattr(stream, "_PAUSE_SECONDS", 0.02)


@asynccontextmanager
async def serving(hall: Hall) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve on a real port, and lend somebody who asks there."""
    async with (
        kit.serving(hall.context, hall.site) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=20.0) as visitor,
    ):
        await visitor.post("/login", data={"key": await hall.door.root()})
        yield visitor


async def told(answer: httpx2.Response, count: int) -> list[tuple[str, str]]:
    """Return the kinds and tasks of the first events of a stream."""
    found = []
    async with asyncio.timeout(20):
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                found.append((event["kind"], event["task_id"]))
                if len(found) == count:
                    break
    return found


async def test_a_page_of_events_leads_to_those_that_come(
    hall: Hall, guest: Browser, shared: Database
) -> None:
    await begin_here(shared)
    (first,) = await submit_many(shared, 1)
    await count_all(shared)
    shown = await guest.open("/events?kind=evt.task.*")
    (rows,) = [one for one in shown.root.all("tbody") if one.get("data-stream")]
    assert first in rows.text
    async with serving(hall) as visitor, visitor.stream("GET", rows["data-stream"]) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        second, third = await submit_many(shared, 2)
        await count_all(shared)
        assert await told(answer, 2) == [("evt.task.queued", second), ("evt.task.queued", third)]


async def test_a_stream_goes_on_where_somebody_was(hall: Hall, shared: Database) -> None:
    await begin_here(shared)
    ids = await submit_many(shared, 3)
    await count_all(shared)
    (row, *_) = await hall.database.run("read_history", ids[0], "default")
    headers = {"Last-Event-ID": str(row["seq"])}
    path = "/events/stream?kind=evt.task.queued"
    async with serving(hall) as visitor, visitor.stream("GET", path, headers=headers) as answer:
        assert [task_id for _, task_id in await told(answer, 2)] == ids[1:]


async def test_a_stream_is_for_whoever_may_read_it(hall: Hall, shared: Database) -> None:
    key = await hall.door.key("read")
    await begin_here(shared)
    async with serving(hall) as visitor:
        visitor.cookies.clear()
        assert (await visitor.get("/events/stream")).status_code == 303
        assert (await visitor.post("/login", data={"key": key})).status_code == 303
        assert (await visitor.get(f"/events/stream?workspace={THEIRS}")).status_code == 404
        async with visitor.stream("GET", "/events/stream?kind=evt.task.queued") as answer:
            assert answer.status_code == 200
            await submit(shared, workspace=THEIRS)
            ours = (await submit(shared, workspace=OURS)).id
            await count_all(shared)
            assert await told(answer, 1) == [("evt.task.queued", ours)]


async def test_pages_of_events_follow_each_other(guest: Browser, shared: Database) -> None:
    await begin_here(shared)
    ids = await submit_many(shared, 60)
    await count_all(shared)
    seen: list[str] = []
    path: str | None = "/events?kind=evt.task.queued"
    while path is not None:
        shown = await guest.open(path)
        seen += [one.text for one in shown.root.all("a") if one.get("class") == "id"]
        path = next((one["href"] for one in shown.root.all("a") if one.get("rel") == "next"), None)
    assert seen == ids[::-1]
