"""Labels of tasks: kept by every way to submit, changed at any time, found by filters, gone with the task."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest

import grns
from grns.client.client import Client
from grns.client.handle import TaskHandle
from grns.errors import InvalidInputError, NotFoundError
from grns.model.filter import parse
from grns.model.submission import edit
from grns.postgres.database import Database
from grns.tasks import edit as store
from grns.tasks import search
from tests.support.store import fetch

SAID: dict[str, Any] = {
    "title": "The front page",
    "description": "Two\nlines",
    "tags": ["relaunch", "site:main"],
    "metadata": {"ticket": 4711, "none": None},
    "created_by": "Älice",
}


async def found(shared: Database, text: str) -> list[str]:
    """Return the ids of a filter."""
    page = await search.list_tasks(shared, workspace="default", wanted=parse(text), limit=50)
    assert (await search.count(shared, workspace="default", wanted=parse(text))).number == len(page.rows)
    return [row.id for row in page.rows]


def said_of(task: grns.Task) -> dict[str, Any]:
    """Return what is said of a task."""
    return {name: getattr(task, name) for name in SAID}


async def test_each_way_to_submit_keeps_them(client: Client, shared: Database) -> None:
    one = await client.submit("noop", {}, pool="worker", **SAID)
    many = await client.submit_many(
        [{"task": "noop", "pool": "worker", **SAID}, {"task": "noop", "pool": "worker"}]
    )
    needy = await client.submit("noop", {}, pool="worker", needs=[one], **SAID)
    (row,) = await fetch(
        shared,
        "select grns.submit_task('noop', title => $1, description => $2, tags => $3,"
        " metadata => $4::text::jsonb, created_by => $5) as id",
        SAID["title"], SAID["description"], SAID["tags"], json.dumps(SAID["metadata"]), SAID["created_by"],
    )  # fmt: skip
    assert isinstance(many[0], TaskHandle)
    assert isinstance(many[1], TaskHandle)
    for task_id in (one.id, many[0].id, needy.id, row["id"]):
        assert said_of(await client.handle(task_id).get()) == SAID
    assert said_of(await many[1].get()) == dict.fromkeys(SAID) | {"tags": []}
    assert len(await fetch(shared, "select from grns.labels")) == 4


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("title", "x" * 256),
        ("title", "two\nlines"),
        ("description", "x" * 10_001),
        ("tags", ["with blank"]),
        ("tags", [f"t{number}" for number in range(33)]),
        ("metadata", {"x": "y" * 20_000}),
        ("created_by", ""),
    ],
)
async def test_what_is_wrong_is_refused_by_python_and_by_sql(
    client: Client, shared: Database, field: str, value: Any
) -> None:
    with pytest.raises(InvalidInputError, match=field):
        await client.submit("noop", {}, pool="worker", **{field: value})
    if field == "metadata":
        value = {"x": "y" * 40_000}
    document = json.dumps([{"task_type": "noop", field: value}])
    with pytest.raises(asyncpg.InvalidParameterValueError, match="grns: a title"):
        await fetch(shared, "select * from grns.submit_graph($1::text::jsonb)", document)
    assert await fetch(shared, "select from grns.tasks") == []


async def test_filters_find_them(client: Client, shared: Database) -> None:
    first = await client.submit(
        "noop", {}, pool="worker", tags=["a", "b:c"], title="Import of May", created_by="ada"
    )
    second = await client.submit("noop", {}, pool="worker", tags=["a"], created_by="bob")
    third = await client.submit("noop", {}, pool="worker", title="Export")
    assert await found(shared, "tag:a") == sorted([first.id, second.id], reverse=True)
    assert await found(shared, "tag:b:c") == [first.id]
    assert await found(shared, "tag:b*") == [first.id]
    assert await found(shared, "tag:a -tag:b:c") == [second.id]
    assert await found(shared, "-tag:a") == [third.id]
    assert await found(shared, "tag:a creator:ada") == [first.id]
    assert await found(shared, "creator:ada,bob") == sorted([first.id, second.id], reverse=True)
    assert await found(shared, 'title:"Import*"') == [first.id]
    assert await found(shared, "tag:a status:running") == []
    assert await found(shared, "tag:none") == []


async def test_pages_of_a_tag_follow_one_another(client: Client, shared: Database) -> None:
    made = [await client.submit("noop", {}, pool="worker", tags=["all"]) for _ in range(7)]
    ids, cursor = list[str](), None
    while True:
        page = await search.list_tasks(
            shared, workspace="default", wanted=parse("tag:all"), limit=3, after=cursor
        )
        ids += [row.id for row in page.rows]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert ids == sorted((one.id for one in made), reverse=True)


async def test_they_change_whatever_the_status(client: Client, shared: Database) -> None:
    handle = await client.submit("noop", {}, pool="worker", **SAID)
    await handle.cancel()
    before = await handle.get()
    changes = edit(title="Another", tags=["site:main", "new"], description="").labels
    async with shared.transaction() as connection:
        await store.label_task(connection, handle.id, changes, workspace="default", actor="t", reason="r")
    task = await handle.get()
    assert (task.version, task.updated_at) == (before.version, before.updated_at)
    assert said_of(task) == SAID | {"title": "Another", "tags": ["new", "site:main"], "description": None}
    assert await found(shared, "tag:new") == [handle.id]
    assert await found(shared, "tag:relaunch") == []
    (event,) = await fetch(
        shared, "select payload::text as payload from grns.events where kind = 'evt.task.changed'"
    )
    payload = json.loads(event["payload"])
    assert payload["fields"] == ["description", "tags", "title"]
    assert payload["before"] == {name: SAID[name] for name in payload["fields"]}


async def test_a_task_that_is_not_there_has_none(shared: Database) -> None:
    with pytest.raises(NotFoundError):
        async with shared.transaction() as connection:
            await store.label_task(connection, "gr-none", {"title": "x"}, workspace="default", actor="t")
    assert await fetch(shared, "select from grns.labels") == []


async def test_changes_at_one_moment_are_both_there(client: Client, shared: Database) -> None:
    handle = await client.submit("noop", {}, pool="worker")

    async def change(**fields: Any) -> None:
        async with shared.transaction() as connection:
            await store.label_task(connection, handle.id, fields, workspace="default", actor="t")

    await asyncio.gather(change(title="x"), change(tags=["y"]), change(metadata={"z": 1}))
    task = await handle.get()
    assert (task.title, task.tags, task.metadata) == ("x", ["y"], {"z": 1})


async def test_they_go_with_their_task(client: Client, shared: Database) -> None:
    handle = await client.submit("noop", {}, pool="worker", **SAID)
    await handle.cancel()
    await fetch(shared, "update grns.tasks set finished_at = now() - interval '9 days'")
    await shared.run("delete_tasks", "", 100, 3600.0, 3600.0, None, False)
    for table in ("tasks", "labels", "tags", "texts", "words"):
        assert await fetch(shared, f"select from grns.{table}") == []
