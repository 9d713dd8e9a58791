"""Triage over HTTP: dead letters, messages, issues, and what is done to many tasks at once."""

from __future__ import annotations

import json

import httpx2
import pytest

from grns.api.app import make_api
from grns.api.export import LINES, NEXT
from grns.api.route import PREFIX
from grns.bootstrap import api as doors
from grns.bootstrap.app import App
from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.dead_letters.test_message import body
from tests.dead_letters.test_triage import letter
from tests.support.aggregators import count_all
from tests.support.api import HERE, Door, actor_of, good, problem_of
from tests.support.harness import settings_for
from tests.support.operations import dead_tasks
from tests.support.store import FINGERPRINT, fetch, place

UNKNOWN = "00000000-0000-4000-8000-000000000000"


async def test_dead_letters_of_both_kinds_stand_side_by_side(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    task_id, message_id = (await place(shared, "dead")).id, str(await letter(shared))
    await place(shared, "succeeded")
    found = good(await local.get(f"{PREFIX}/dead-letters"))["items"]
    assert {(one["id"], one["what"]) for one in found} == {(task_id, "task"), (message_id, "message")}
    only = good(await local.get(f"{PREFIX}/dead-letters", params={"what": "message"}))["items"]
    assert [one["id"] for one in only] == [message_id]
    only = good(await local.get(f"{PREFIX}/dead-letters", params={"filter": "error:Value*"}))["items"]
    assert [one["id"] for one in only] == [task_id]


async def test_dead_letters_are_exported_whole_a_line_each(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    path = f"{PREFIX}/dead-letters/export"
    ids = [(await place(shared, "dead")).id for _ in range(25)]
    await place(shared, "succeeded")
    first = await local.get(path, params={"limit": 22})
    assert first.headers["content-type"] == LINES
    rest = await local.get(path, params={"limit": 22, "cursor": first.headers[NEXT]})
    assert NEXT not in rest.headers
    found = [json.loads(line) for line in (first.text + rest.text).splitlines()]
    assert {one["id"] for one in found} == set(ids)
    assert len(found) == len(ids)
    assert all("payload" in one and one["last_error"]["class"] == "ValueError" for one in found)
    chosen = await local.get(path, params={"filter": f"id:{ids[3]}"})
    assert [json.loads(line)["id"] for line in chosen.text.splitlines()] == [ids[3]]


async def test_messages_are_exported_whole(local: httpx2.AsyncClient, shared: Database) -> None:
    path = f"{PREFIX}/dead-letters/export"
    assert (await local.get(path, params={"what": "message"})).text == ""
    message_id = await letter(shared, content=b"{no json")
    (line,) = (await local.get(path, params={"what": "message"})).text.splitlines()
    assert (json.loads(line)["id"], json.loads(line)["body_text"]) == (str(message_id), "{no json")
    for wrong in ({"what": "message", "filter": "type:noop"}, {"filter": "status:queued"}):
        assert problem_of(await local.get(path, params=wrong), 400) == "bad_filter"


async def test_a_message_is_shown_whole_and_closed_once(local: httpx2.AsyncClient, shared: Database) -> None:
    path = f"{PREFIX}/messages/{await letter(shared, content=b'{no json')}"
    shown = good(await local.get(path))
    assert (shown["body_text"], shown["body_base64"], shown["state"]) == ("{no json", "e25vIGpzb24=", "new")
    assert good(await local.post(f"{path}/discard", json={"reason": "noise"}))["state"] == "discarded"
    assert problem_of(await local.post(f"{path}/discard"), 409) == "conflict"
    for verb in ("", "/discard", "/resend"):
        method = "POST" if verb else "GET"
        answer = await local.request(method, f"{PREFIX}/messages/{UNKNOWN}{verb}")
        assert problem_of(answer, 404) == "not_found"
    (event,) = await fetch(shared, "select * from grns.events where kind = 'evt.dead_letter.discarded'")
    assert (event["actor"], json.loads(event["payload"])["why"]) == (actor_of(local), "noise")


async def test_without_a_broker_no_message_is_sent_again(local: httpx2.AsyncClient, shared: Database) -> None:
    path = f"{PREFIX}/messages/{await letter(shared)}"
    assert problem_of(await local.post(f"{path}/resend"), 503) == "unavailable"
    assert good(await local.get(path))["state"] == "new"


async def test_a_message_is_mended_and_sent_again(shared: Database, broker: LocalNats) -> None:
    """M1: a forged event is refused, a valid command is sent."""
    message_id = await letter(shared)
    app = App(settings_for(shared.url, broker.url))
    transport = app.transport("test")
    await transport.connect()
    try:
        await transport.provision()
        there = httpx2.ASGITransport(app=make_api(doors.context(app, shared, transport)), client=HERE)
        shown = await Door(shared).shown()
        async with httpx2.AsyncClient(transport=there, base_url="http://localhost", headers=shown) as visitor:
            path = f"{PREFIX}/messages/{message_id}/resend"
            assert problem_of(await visitor.post(path, json={"body": {}}), 400) == "bad_envelope"
            forged = {
                "subject": "evt.task.completed.v1",
                "headers": {"Grns-Workspace": "other"},
                "body": json.loads(body("evt.task.completed")),
            }
            assert problem_of(await visitor.post(path, json=forged), 400) == "bad_subject"
            assert problem_of(await visitor.post(path), 400) == "bad_json"
            wanted = {"subject": "cmd.task.execute.v1", "body": json.loads(body()), "reason": "mended"}
            assert good(await visitor.post(path, json=wanted))["state"] == "redriven"
            assert problem_of(await visitor.post(path, json=wanted), 409) == "conflict"
        (event,) = await fetch(shared, "select actor from grns.events where kind = 'evt.dead_letter.resent'")
        assert event["actor"] == actor_of(visitor)
    finally:
        await transport.close()


async def test_an_issue_is_shown_and_something_is_said_of_it(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    task_id = (await place(shared, "dead")).id
    await count_all(shared)
    (row,) = good(await local.get(f"{PREFIX}/issues", params={"state": ["new", "regressed"]}))["items"]
    assert (row["fingerprint"], row["open_count"], len(row["trend"])) == (FINGERPRINT, 1, 24)
    assert good(await local.get(f"{PREFIX}/issues", params={"state": "resolved"}))["items"] == []
    path = f"{PREFIX}/issues/{FINGERPRINT}"
    shown = await local.get(path)
    assert good(shown)["facets"]["task_type"] == {"noop": 1}
    said = {"state": "acknowledged", "note": "we know", "snoozed_until": "2030-01-01T00:00:00Z"}
    changed = good(await local.patch(path, json=said, headers={"If-Match": shown.headers["etag"]}))
    assert {name: changed[name] for name in said} == said
    assert changed["state_by"] == actor_of(local)
    late = await local.patch(path, json={"note": None}, headers={"If-Match": shown.headers["etag"]})
    assert problem_of(late, 412) == "stale"
    assert good(await local.patch(path, json={"note": None}))["note"] is None
    for wrong in (
        {},
        {"state": "regressed"},
        {"state": "lost"},
        {"snoozed_until": "soon"},
        {"note": "x" * 5000},
    ):
        assert problem_of(await local.patch(path, json=wrong), 400) == "bad_issue"
    (task,) = good(await local.get(f"{path}/tasks"))["items"]
    assert task["id"] == task_id
    assert problem_of(await local.get(f"{PREFIX}/issues/beef"), 404) == "not_found"


async def test_an_operation_is_counted_first_then_asked_for_and_ended(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    await dead_tasks(shared, 5)
    path = f"{PREFIX}/operations"
    wanted = {"action": "redrive", "filter": "type:noop", "rate_per_minute": 60.0, "reason": "mended"}
    seen = good(await local.post(path, json={**wanted, "dry_run": True}), [200])
    assert (seen["count"], seen["is_exact"], seen["by_type"][0]["task_type"]) == (5, True, "noop")
    assert good(await local.get(path))["items"] == []
    answer = await local.post(path, json=wanted)
    made = good(answer, [201])
    assert (made["matched"], made["state"], made["created_by"]) == (5, "pending", actor_of(local))
    one = answer.headers["location"]
    assert good(await local.get(one)) == made
    assert good(await local.post(f"{one}/pause", json={"reason": "wait"}))["state"] == "paused"
    assert problem_of(await local.post(f"{one}/pause"), 409) == "conflict"
    assert [row["id"] for row in good(await local.get(path, params={"state": "paused"}))["items"]] == [
        made["id"]
    ]
    assert good(await local.post(f"{one}/resume"))["state"] == "pending"
    assert good(await local.post(f"{one}/cancel"))["state"] == "cancelled"
    assert problem_of(await local.post(f"{one}/resume"), 409) == "conflict"
    assert problem_of(await local.get(f"{path}/{made['id'] + 1}"), 404) == "not_found"


async def test_operations_have_pages(local: httpx2.AsyncClient) -> None:
    path = f"{PREFIX}/operations"
    made = [
        good(await local.post(path, json={"action": "cancel", "filter": f"type:t{n}"}))["id"]
        for n in range(3)
    ]
    page = good(await local.get(path, params={"limit": "2"}))
    assert [row["id"] for row in page["items"]] == [made[2], made[1]]
    rest = good(await local.get(path, params={"cursor": page["next_cursor"]}))
    assert ([row["id"] for row in rest["items"]], rest["next_cursor"]) == ([made[0]], None)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({}, "bad_operation"),
        ({"action": "explode"}, "bad_operation"),
        ({"action": "redrive", "filter": "status:running"}, "bad_filter"),
        ({"action": "redrive", "filter": "nonsense:1"}, "bad_filter"),
        ({"action": "discard", "canary": True}, "bad_operation"),
        ({"action": "redrive", "rate_per_minute": 0}, "bad_operation"),
        ({"action": "redrive", "patch": []}, "bad_operation"),
        ({"action": "redrive", "dry_run": "yes"}, "bad_operation"),
    ],
)
async def test_what_nobody_could_do_is_refused(
    local: httpx2.AsyncClient, wanted: dict[str, object], code: str
) -> None:
    assert problem_of(await local.post(f"{PREFIX}/operations", json=wanted), 400) == code
