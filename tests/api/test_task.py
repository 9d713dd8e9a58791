"""Tasks over HTTP: created, listed, shown, edited, ended, opened again; what happened to each."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from grns.api.route import PREFIX
from grns.model.outcome import Verb
from grns.postgres.database import Database
from grns.worker.step_store import StepStore
from tests.support.api import OURS, THEIRS, Door, actor_of, good, problem_of
from tests.support.harness import submit, submit_many
from tests.support.store import ROADS, claim, fetch, finish, place, row_of

TASKS = f"{PREFIX}/tasks"


async def test_a_task_is_created_once_for_its_key(local: httpx2.AsyncClient, shared: Database) -> None:
    body = {"task_type": "fetch_page", "payload": {"url": "https://a.example/"}, "priority": 0}
    first = await local.post(TASKS, json=body, headers={"Idempotency-Key": "page-1"})
    made = good(first, [201])
    assert made["created"]
    assert first.headers["location"] == f"{TASKS}/{made['id']}"
    again = good(await local.post(TASKS, json={**body, "idempotency_key": "page-1"}), [200])
    assert again == {**made, "created": False}
    row = await row_of(shared, made["id"])
    assert (row["priority"], row["idempotency_key"], row["trace_id"]) == (0, "page-1", made["trace_id"])
    other = await local.post(TASKS, json={"task_type": "other"}, headers={"Idempotency-Key": "page-1"})
    assert problem_of(other, 409) == "conflict"
    both = await local.post(TASKS, json={**body, "idempotency_key": "x"}, headers={"Idempotency-Key": "y"})
    assert problem_of(both, 400) == "bad_submission"


async def test_why_a_task_was_opened_again_is_kept(local: httpx2.AsyncClient, shared: Database) -> None:
    task_id = (await place(shared, "dead")).id
    good(await local.post(f"{TASKS}/{task_id}/redrive", json={"reason": "the site is back"}))
    event = good(await local.get(f"{TASKS}/{task_id}/events"))["items"][-1]
    assert (event["kind"], event["payload"]["why"]) == ("evt.task.queued", "the site is back")
    steps = good(await local.get(f"{TASKS}/{task_id}/explain"))["steps"]
    assert f"redriven by {actor_of(local)}, with its attempts reset (the site is back)" in [
        step["sentence"] for step in steps
    ]


async def test_what_a_filter_finds_is_counted(local: httpx2.AsyncClient, shared: Database) -> None:
    for road in ("dead", "dead", "queued"):
        await place(shared, road)
    path = f"{TASKS}/count"
    assert good(await local.get(path, params={"filter": "error:Value*"})) == {"count": 2, "is_exact": True}
    good(await local.put(f"{PREFIX}/filters/bad", json={"text": "status:dead"}))
    found = good(await local.get(path, params={"filter": "error:Nothing", "saved": "bad"}))
    assert found == {"count": 0, "is_exact": True}
    assert problem_of(await local.get(path, params={"filter": "colour:red"}), 400) == "bad_filter"
    assert problem_of(await local.get(path, params={"saved": "good"}), 404) == "not_found"


@pytest.mark.parametrize("workspace", [None, OURS])
async def test_many_at_once_are_each_created_once(door: Door, workspace: str | None) -> None:
    async with door.visitor(await door.key("submit", workspace=workspace)) as visitor:
        bodies = [{"task_type": "noop", "idempotency_key": f"key-{n % 10}"} for n in range(40)]
        answers = await asyncio.gather(*(visitor.post(TASKS, json=body) for body in bodies))
    made = [good(answer) for answer in answers]
    assert sum(one["created"] for one in made) == 10
    assert len({one["id"] for one in made}) == 10


@pytest.mark.parametrize("workspace", [None, OURS])
async def test_of_a_batch_each_has_its_own_answer(door: Door, workspace: str | None) -> None:
    async with door.visitor(await door.key("submit", workspace=workspace)) as visitor:
        tasks: list[Any] = [
            {"task_type": "one", "idempotency_key": "a"},
            {"task_type": "a b"},
            {"task_type": "one", "idempotency_key": "a"},
            {"task_type": "another", "idempotency_key": "a"},
            {"task_type": "two", "payload": {"n": 1}},
            "three",
            {"task_type": "four", "payload": {"text": "x" * 300_000}},
        ]
        items = good(await visitor.post(f"{TASKS}/batch", json={"tasks": tasks}))["items"]
        assert [item["status"] for item in items] == [
            "created", "problem", "exists", "problem", "created", "problem", "problem",
        ]  # fmt: skip
        assert items[2]["id"] == items[0]["id"]
        codes = [item["problem"]["code"] for item in items if item["status"] == "problem"]
        assert codes == ["bad_submission", "conflict", "bad_submission", "too_large"]
        wrongs: list[dict[str, Any]] = [{}, {"tasks": []}, {"tasks": "all"}, {"tasks": [{}] * 501}]
        for wrong in wrongs:
            assert problem_of(await visitor.post(f"{TASKS}/batch", json=wrong), 400) == "bad_submission"


BAD_ITEMS = {
    '{"task_type": "noop", "payload": {"a": "\\u0000"}}': "bad_string",
    '{"task_type": "noop", "payload": {"a": "\\ud800"}}': "bad_string",
    '{"task_type": "noop", "payload": {"a": 1, "a": 2}}': "duplicate_key",
    '{"task_type": "noop", "task_type": "noop"}': "duplicate_key",
    '{"task_type": "noop", "payload": {"a": [9223372036854775808]}}': "bad_number",
    '{"task_type": "noop", "payload": {"a": 1e400}}': "bad_number",
    '{"task_type": "noop", "payload": {"a": NaN}}': "bad_number",
    f'{{"task_type": "noop", "payload": {{"a": {"[" * 64}{"]" * 64}}}}}': "too_deep",
    f'{{"task_type": "noop", "payload": {{"a": [{",".join("0" * 10_001)}]}}}}': "too_many_nodes",
    f'{{"task_type": "noop", "payload": {{"a": "{"x" * 262_144}"}}}}': "too_large",
    '{"task_type": "noop", "priority": 9223372036854775808}': "bad_number",
    '{"task_type": "noop", "\\u0000": 1}': "bad_submission",
    "9223372036854775808": "bad_number",
    "[]": "bad_submission",
}


async def test_create_tasks_with_bad_items_creates_the_others(door: Door, shared: Database) -> None:
    """L6: a value that is refused anywhere in one item is the problem of that item alone."""
    good_one = '{"task_type": "noop"}'
    items = [one for bad in BAD_ITEMS for one in (good_one, bad)]
    json_type = {"Content-Type": "application/json"}
    async with door.visitor(await door.key("submit")) as visitor:
        body = f'{{"tasks": [{", ".join(items)}]}}'
        answers = good(await visitor.post(f"{TASKS}/batch", content=body, headers=json_type))["items"]
        assert [answer["status"] for answer in answers] == ["created", "problem"] * len(BAD_ITEMS)
        assert [answer["problem"]["code"] for answer in answers[1::2]] == list(BAD_ITEMS.values())
        for whole, code in (
            (f'{{"tasks": [{good_one}', "bad_json"),
            (f'{{"tasks": [{good_one}], "tasks": []}}', "duplicate_key"),
            (f'{{"tasks": {"[" * 100_000}{"]" * 100_000}}}', "too_deep"),
        ):
            refused = await visitor.post(f"{TASKS}/batch", content=whole, headers=json_type)
            assert problem_of(refused, 400) == code
    assert len(await fetch(shared, "select from grns.tasks")) == len(BAD_ITEMS)


async def test_a_task_is_put_only_into_a_workspace_of_ones_own(door: Door) -> None:
    async with door.visitor(await door.key("submit")) as visitor:
        body = {"task_type": "noop", "workspace": THEIRS}
        assert problem_of(await visitor.post(TASKS, json=body), 404) == "not_found"
        (item,) = good(await visitor.post(f"{TASKS}/batch", json={"tasks": [body]}))["items"]
        assert item["problem"]["code"] == "not_found"
    async with door.visitor(await door.key("submit", workspace=None)) as visitor:
        made = good(await visitor.post(TASKS, json=body))
    assert (await row_of(door.database, made["id"]))["workspace"] == THEIRS


async def test_lists_have_pages(local: httpx2.AsyncClient, shared: Database) -> None:
    ids = await submit_many(shared, 7)
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = good(await local.get(TASKS, params={"limit": "3", **cursor}))
        seen += [row["id"] for row in page["items"]]
        assert page["is_partial"] is False
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == sorted(ids, reverse=True)


async def test_lists_are_filtered_also_as_it_was_saved(local: httpx2.AsyncClient, shared: Database) -> None:
    wanted = (await submit(shared, "fetch_page", priority=0)).id
    await submit(shared, "fetch_page", priority=1)
    await submit(shared, "other", priority=0)
    found = good(await local.get(TASKS, params={"filter": "type:fetch_* priority:0"}))
    assert [row["id"] for row in found["items"]] == [wanted]
    said = good(await local.put(f"{PREFIX}/filters/mine", json={"text": "priority:0   status:queued"}))
    assert said == {"name": "mine", "text": "status:queued priority:0"}
    found = good(await local.get(TASKS, params={"filter": "type:fetch_page", "saved": "mine"}))
    assert [row["id"] for row in found["items"]] == [wanted]
    assert problem_of(await local.get(TASKS, params={"saved": "yours"}), 404) == "not_found"


@pytest.mark.parametrize("road", ROADS)
async def test_a_task_is_shown_wherever_it_is(local: httpx2.AsyncClient, shared: Database, road: str) -> None:
    task_id = (await place(shared, road)).id
    row = await row_of(shared, task_id)
    shown = good(await local.get(f"{TASKS}/{task_id}"))
    for name in ("id", "status", "attempt", "version", "priority", "fingerprint", "owner_agent_id"):
        assert shown[name] == row[name], name
    events = good(await local.get(f"{TASKS}/{task_id}/events"))["items"]
    assert events[0]["kind"] in ("evt.task.queued", "evt.task.waiting")
    attempts = good(await local.get(f"{TASKS}/{task_id}/attempts"))["items"]
    assert [one["attempt"] for one in attempts] == list(range(1, row["attempt"] + 1))


async def test_numbers_and_times_come_through_as_they_are(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    payload = {"big": 2**53 + 1, "least": -(2**63), "float": 1e300, "text": "\u2028é", "none": None, "": []}
    made = good(await local.post(TASKS, json={"task_type": "noop", "payload": payload}))
    shown = good(await local.get(f"{TASKS}/{made['id']}"))
    assert shown["payload"] == payload
    assert shown["created_at"].endswith("Z")


async def test_an_edit_is_made_only_to_what_was_seen(local: httpx2.AsyncClient, shared: Database) -> None:
    task_id = (await submit(shared, payload={"url": "a", "n": 1})).id
    seen = (await local.get(f"{TASKS}/{task_id}")).headers["etag"]
    first = await local.patch(
        f"{TASKS}/{task_id}", json={"priority": 0, "patch": {"url": None}}, headers={"If-Match": seen}
    )
    assert good(first)["payload"] == {"n": 1}
    assert first.headers["etag"] != seen
    late = await local.patch(f"{TASKS}/{task_id}", json={"priority": 1}, headers={"If-Match": seen})
    assert problem_of(late, 412) == "stale"
    for will_do in ({"If-Match": first.headers["etag"]}, {"If-Match": "*"}, {}):
        answer = await local.patch(f"{TASKS}/{task_id}", json={"priority": 1}, headers=will_do)
        assert good(answer)["priority"] == 1
    wrong = await local.patch(f"{TASKS}/{task_id}", json={"priority": 1}, headers={"If-Match": "3"})
    assert problem_of(wrong, 400) == "bad_if_match"
    held = await claim(shared, task_id)
    assert problem_of(await local.patch(f"{TASKS}/{task_id}", json={"priority": 0}), 409) == "conflict"
    await finish(shared, held)
    nothings: list[dict[str, Any]] = [{}, {"reason": "because"}, {"payload": {}, "patch": {}}]
    for nothing in nothings:
        assert problem_of(await local.patch(f"{TASKS}/{task_id}", json=nothing), 400) == "bad_edit"


async def test_a_task_is_ended_opened_again_and_set_aside(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    task_id = (await submit(shared, max_attempts=1)).id
    path = f"{TASKS}/{task_id}"
    await finish(shared, await claim(shared, task_id), Verb.RETRY)
    again = good(await local.post(f"{path}/redrive"))
    assert (again["answer"], again["task"]["status"]) == ("redriven", "queued")
    ended = good(await local.post(f"{path}/cancel", json={"reason": "not needed"}))
    assert (ended["answer"], ended["task"]["status"]) == ("cancelled", "cancelled")
    assert good(await local.post(f"{path}/cancel"))["answer"] == "cancelled"
    aside = good(await local.post(f"{path}/discard", json={}))
    assert aside["answer"] == "discarded"
    assert aside["task"]["discarded_by"] == actor_of(local)
    assert good(await local.post(f"{path}/discard"))["answer"] == "discarded before"
    events = good(await local.get(f"{path}/events"))["items"]
    told = [(one["kind"], one["actor"]) for one in events if one["kind"].startswith("evt")]
    assert told[-3:] == [
        ("evt.task.queued", actor_of(local)),
        ("evt.task.cancelled", actor_of(local)),
        ("evt.task.discarded", actor_of(local)),
    ]


async def test_one_that_runs_is_asked_to_end(local: httpx2.AsyncClient, shared: Database) -> None:
    task_id = (await place(shared, "running")).id
    said = good(await local.post(f"{TASKS}/{task_id}/cancel"))
    assert (said["answer"], said["task"]["status"]) == ("requested", "running")
    assert said["task"]["cancel_requested_at"]


@pytest.mark.parametrize("path", ["", "/events", "/attempts", "/steps"])
async def test_what_there_is_not_is_not_found(local: httpx2.AsyncClient, path: str) -> None:
    assert problem_of(await local.get(f"{TASKS}/gr-nothing{path}"), 404) == "not_found"


async def test_tasks_are_counted_as_far_as_the_log_is(local: httpx2.AsyncClient) -> None:
    counts = good(await local.get(f"{PREFIX}/counts"))
    assert counts["total"] == 0
    assert set(counts["states"]) >= {"queued", "running", "dead"}
    steps = good(await local.get(f"{PREFIX}/minutes"))
    assert (steps["items"], steps["step_seconds"]) == ([], 60)


async def test_the_steps_of_a_task(local: httpx2.AsyncClient, shared: Database) -> None:
    taken = await place(shared, "running")
    store = StepStore(shared, batch_limit=10)
    for number in range(3):
        await store.record(taken, f"search-{number}", "step", json.dumps({"found": number}))
    page = good(await local.get(f"{TASKS}/{taken.id}/steps", params={"limit": 2}))
    assert [(one["name"], one["kind"], one["attempt"], one["value"]) for one in page["items"]] == [
        ("search-0", "step", 1, {"found": 0}), ("search-1", "step", 1, {"found": 1}),
    ]  # fmt: skip
    rest = good(await local.get(f"{TASKS}/{taken.id}/steps", params={"cursor": page["next_cursor"]}))
    assert [one["name"] for one in rest["items"]] == ["search-2"]
    assert rest["next_cursor"] is None
    assert problem_of(await local.get(f"{TASKS}/{taken.id}/steps?cursor=no"), 400) == "bad_cursor"


async def test_a_signal_is_sent_once(local: httpx2.AsyncClient, shared: Database) -> None:
    taken = await place(shared, "running")
    body = {"name": "approved", "value": {"by": "ann"}, "id": "7dc6e5af-0776-4f37-8f16-5767f5f9471f"}
    path = f"{TASKS}/{taken.id}/signals"
    assert good(await local.post(path, json=body)) == {"answer": "kept"}
    assert good(await local.post(path, json=body)) == {"answer": "repeated"}
    store = StepStore(shared, batch_limit=1)
    assert await store.take_signal(taken, "signal approved", "approved") == '{"value": {"by": "ann"}}'
    assert problem_of(await local.post(f"{TASKS}/gr-nothing/signals", json=body), 404) == "not_found"
    assert problem_of(await local.post(path, json={"name": "a b"}), 400) == "bad_signal"
    await finish(shared, taken)
    assert problem_of(await local.post(path, json={"name": "approved"}), 409) == "conflict"
