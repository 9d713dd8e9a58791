"""What people say of a task and what its handlers log, over HTTP."""

from __future__ import annotations

from typing import Any

import httpx2

from grns.api.route import PREFIX
from grns.model.outcome import Verb
from grns.postgres.database import Database
from tests.support.api import OURS, THEIRS, Door, good, problem_of
from tests.support.store import claim, finish

TASKS = f"{PREFIX}/tasks"
LABELS = {
    "title": "Fetch <b>",
    "description": "all\nof it",
    "tags": ["eu", "nightly"],
    "metadata": {"order": 7},
}


async def labelled(local: httpx2.AsyncClient, **labels: Any) -> str:
    """Create a task of which something is said."""
    made = good(await local.post(TASKS, json={"task_type": "noop", **labels}), [201])
    task_id: str = made["id"]
    return task_id


async def test_what_is_said_of_a_task_is_shown_filtered_and_changed(local: httpx2.AsyncClient) -> None:
    task_id = await labelled(local, **LABELS, created_by="ann@example.com")
    shown = good(await local.get(f"{TASKS}/{task_id}"))
    assert {name: shown[name] for name in LABELS} == LABELS
    assert shown["created_by"] == "ann@example.com"
    for filter_ in ("tag:nightly", "title:Fetch*", 'creator:"ann@example.com"', "tag:eu type:noop"):
        found = good(await local.get(TASKS, params={"filter": filter_}))
        assert [one["id"] for one in found["items"]] == [task_id], filter_
    assert good(await local.get(TASKS, params={"filter": "tag:other"}))["items"] == []

    seen = shown["version"]
    changed = {"title": "Fetch all", "tags": ["eu"], "description": ""}
    answer = await local.patch(f"{TASKS}/{task_id}", json=changed)
    assert answer.status_code == 200, answer.text
    shown = good(await local.get(f"{TASKS}/{task_id}"))
    assert (shown["title"], shown["tags"], shown["description"]) == ("Fetch all", ["eu"], None)
    assert (shown["version"], shown["created_by"]) == (seen, "ann@example.com")
    event = good(await local.get(f"{TASKS}/{task_id}/events"))["items"][-1]
    assert event["kind"] == "evt.task.changed"
    assert event["payload"]["fields"] == ["description", "tags", "title"]
    assert event["payload"]["before"]["tags"] == ["eu", "nightly"]
    assert good(await local.get(TASKS, params={"filter": "tag:nightly"}))["items"] == []


async def test_what_cannot_be_said_of_a_task(local: httpx2.AsyncClient) -> None:
    task_id = await labelled(local)
    many = [f"t{number}" for number in range(33)]
    wrongs: list[dict[str, Any]] = [
        {"title": "x" * 256}, {"title": "two\nlines"}, {"tags": ["a b"]}, {"tags": many},
        {"metadata": []}, {"metadata": {"x": "y" * 17_000}}, {"description": "x" * 10_001},
    ]  # fmt: skip
    for wrong in wrongs:
        said = await local.post(TASKS, json={"task_type": "noop", **wrong})
        assert problem_of(said, 400) == "bad_submission", wrong
        assert (await local.patch(f"{TASKS}/{task_id}", json=wrong)).status_code == 400, wrong
    assert problem_of(await local.post(TASKS, json={"task_type": "noop", "created_by": ""}), 400)
    assert good(await local.get(f"{TASKS}/{task_id}"))["title"] is None


async def test_the_log_of_a_task_over_http(local: httpx2.AsyncClient, shared: Database) -> None:
    task_id = await labelled(local)
    claimed = await claim(shared, task_id)
    await finish(shared, claimed, Verb.SUCCEED)
    lines = good(await local.get(f"{TASKS}/{task_id}/logs"))["items"]
    assert {line["source"] for line in lines} == {"grns"}
    assert [line["level"] for line in lines] == ["INFO"] * len(lines)
    assert len(good(await local.get(f"{TASKS}/{task_id}/logs", params={"limit": 1}))["items"]) == 1
    assert good(await local.get(f"{TASKS}/{task_id}/logs", params={"level": "ERROR"}))["items"] == []
    wrongs: list[dict[str, Any]] = [{"level": "LOUD"}, {"limit": 0}, {"limit": 1001}]
    for wrong in wrongs:
        assert (await local.get(f"{TASKS}/{task_id}/logs", params=wrong)).status_code == 400
    assert problem_of(await local.get(f"{TASKS}/gr-nothing/logs"), 404) == "not_found"


async def test_the_log_of_others_is_not_shown(door: Door) -> None:
    async with (
        door.visitor(await door.key("submit", "read", workspace=OURS)) as ours,
        door.visitor(await door.key("read", workspace=THEIRS)) as theirs,
    ):
        made = good(await ours.post(TASKS, json={"task_type": "noop", "title": "ours"}), [201])
        assert good(await ours.get(f"{TASKS}/{made['id']}/logs"))["items"]
        assert problem_of(await theirs.get(f"{TASKS}/{made['id']}/logs"), 404) == "not_found"
        assert good(await ours.get(TASKS, params={"filter": "title:ours"}))["items"] != []
        assert good(await theirs.get(TASKS, params={"filter": "title:ours"}))["items"] == []
