"""Webhooks over HTTP: made, changed, signed anew, pinged, and what they were told of."""

from __future__ import annotations

import re
from typing import Any

import httpx2

from grns.api.route import PREFIX
from grns.model.url_policy import UrlPolicy
from grns.postgres.database import Database
from grns.webhooks.service import create_webhook
from tests.support.api import OURS, Door, actor_of, good, problem_of
from tests.support.harness import submit_many
from tests.support.store import ACTOR, fetch
from tests.support.webhooks import settle
from tests.webhooks.test_deliveries import make, take

PATH = f"{PREFIX}/webhooks"
URL = "https://hooks.example.org/services/s3cret"
ORDER: dict[str, Any] = {"url": URL, "kinds": ["evt.task.*"], "description": "pages us"}


async def test_a_webhook_is_made_and_its_secret_shown_once(local: httpx2.AsyncClient) -> None:
    answer = await local.post(PATH, json=ORDER)
    made = good(answer, [201])
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", made["secret"])
    assert {name: made[name] for name in ORDER} == ORDER
    assert (made["created_by"], made["is_enabled"], made["version"]) == (actor_of(local), True, 1)
    shown = await local.get(answer.headers["location"])
    assert good(shown) == {name: value for name, value in made.items() if name != "secret"}
    assert shown.headers["etag"] == '"1"'
    turned = good(await local.post(f"{PATH}/{made['id']}/rotate", json={"overlap_seconds": 60.0}))
    assert turned["secret"] not in (made["secret"], None)
    assert turned["old_secret_until"] is not None
    for answer in (
        await local.get(PATH),
        await local.get(f"{PATH}/{made['id']}"),
        await local.patch(f"{PATH}/{made['id']}", json={"is_enabled": False}),
        await local.get(f"{PREFIX}/events", params={"kind": "evt.webhook.*"}),
        await local.delete(f"{PATH}/{made['id']}"),
    ):
        good(answer)
        for secret in (made["secret"], turned["secret"]):
            assert secret.removeprefix("whsec_") not in answer.text
            assert "whsec_" not in answer.text


async def test_what_is_refused_has_its_code_and_does_not_repeat_the_url(local: httpx2.AsyncClient) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"url": "http://hooks.example.org/s3cret"}, "bad_url"),
        ({"url": "https://user:s3cret@hooks.example.org/"}, "bad_url"),
        ({"url": "https://169.254.169.254/s3cret"}, "forbidden_address"),
        ({"url": "https://[::ffff:127.0.0.1]/s3cret"}, "forbidden_address"),
        ({"url": "https://localhost/s3cret"}, "forbidden_address"),
        ({"url": ""}, "bad_webhook"),
        ({"url": 7}, "bad_webhook"),
        ({"kinds": []}, "bad_webhook"),
        ({"kinds": ["evt.task.ded"]}, "bad_kind"),
        ({"kinds": ["cmd.task.execute"]}, "bad_kind"),
        ({"kinds": "evt.task.dead"}, "bad_webhook"),
        ({"description": "\u202e"}, "bad_webhook"),
        ({"secret": "whsec_AAAA"}, "bad_webhook"),
    ]
    for change, code in wrong:
        answer = await local.post(PATH, json={**ORDER, **change})
        assert problem_of(answer, 400) == code, change
        assert "s3cret" not in answer.text
    assert problem_of(await local.post(PATH, json={}), 400) == "bad_webhook"
    assert good(await local.get(PATH))["items"] == []


async def test_a_webhook_is_changed_as_it_was_seen(local: httpx2.AsyncClient) -> None:
    made = good(await local.post(PATH, json=ORDER), [201])
    path = f"{PATH}/{made['id']}"
    changed = await local.patch(path, json={"kinds": ["dlq.task.*"]}, headers={"If-Match": '"1"'})
    assert (good(changed)["kinds"], changed.headers["etag"]) == (["dlq.task.*"], '"2"')
    late = await local.patch(path, json={"is_enabled": False}, headers={"If-Match": '"1"'})
    assert problem_of(late, 412) == "stale"
    assert problem_of(await local.patch(path, json={}, headers={"If-Match": '"x"'}), 400) == "bad_if_match"
    assert good(await local.patch(path, json={"description": None}))["description"] is None
    for wrong, code in (
        ({}, "bad_webhook"),
        ({"url": None}, "bad_webhook"),
        ({"kinds": None}, "bad_webhook"),
        ({"is_enabled": None}, "bad_webhook"),
        ({"is_enabled": 1}, "bad_webhook"),
        ({"url": "https://10.0.0.1/"}, "forbidden_address"),
        ({"version": 7}, "bad_webhook"),
    ):
        assert problem_of(await local.patch(path, json=wrong), 400) == code, wrong
    assert good(await local.patch(path, json={"is_enabled": False}))["is_enabled"] is False
    assert problem_of(await local.post(f"{path}/ping"), 409) == "conflict"
    assert good(await local.delete(path))["id"] == made["id"]
    for gone in (await local.get(path), await local.delete(path), await local.post(f"{path}/rotate")):
        assert problem_of(gone, 404) == "not_found"
    for wrong_overlap in (-1.0, 1e9, "a day"):
        answer = await local.post(f"{path}/rotate", json={"overlap_seconds": wrong_overlap})
        assert problem_of(answer, 400) == "bad_overlap"


async def test_who_may_not_change_it_sees_no_path(door: Door) -> None:
    _, row = await create_webhook(
        door.database, workspace=OURS, url=URL, kinds=["evt.task.*"], guard=UrlPolicy(), actor=ACTOR
    )
    for scope, url in (("read", "https://hooks.example.org/…"), ("admin", URL)):
        async with door.visitor(await door.key(scope)) as visitor:
            assert good(await visitor.get(f"{PATH}/{row.id}"))["url"] == url
            assert [one["url"] for one in good(await visitor.get(PATH))["items"]] == [url]


async def test_webhooks_are_listed_page_by_page(local: httpx2.AsyncClient) -> None:
    ids = [good(await local.post(PATH, json=ORDER), [201])["id"] for _ in range(3)]
    page = good(await local.get(PATH, params={"limit": "2"}))
    rest = good(await local.get(PATH, params={"cursor": page["next_cursor"]}))
    assert [row["id"] for row in page["items"] + rest["items"]] == sorted(ids, reverse=True)
    assert rest["next_cursor"] is None
    assert problem_of(await local.get(PATH, params={"cursor": "a b"}), 400) == "bad_cursor"


async def test_what_it_was_told_of_is_listed_and_sent_again(
    local: httpx2.AsyncClient, shared: Database
) -> None:
    path = f"{PATH}/{good(await local.post(PATH, json=ORDER), [201])['id']}"
    (task_id,) = await submit_many(shared, 1)
    await settle(shared)
    assert await make(shared) == 1
    pinged = good(await local.post(f"{path}/ping"))
    assert (pinged["kind"], pinged["state"]) == ("evt.webhook.pinged", "pending")
    page = good(await local.get(f"{path}/deliveries", params={"limit": "1"}))
    assert [row["seq"] for row in page["items"]] == [pinged["seq"]]
    (told,) = good(await local.get(f"{path}/deliveries", params={"cursor": page["next_cursor"]}))["items"]
    assert (told["kind"], told["task_id"], told["attempts"]) == ("evt.task.queued", task_id, 0)
    assert good(await local.get(f"{path}/deliveries/{told['seq']}")) == told
    await take(shared)
    again = f"{path}/deliveries/{told['seq']}/resend"
    assert problem_of(await local.post(again), 409) == "conflict"
    await fetch(
        shared,
        "update grns.webhook_deliveries set claim_id = null, due_at = null, state = 'failed',"
        " error = 'timeout', ended_at = now()",
    )
    failed = good(await local.get(f"{path}/deliveries", params={"state": "failed"}))["items"]
    assert [row["error"] for row in failed] == ["timeout", "timeout"]
    assert good(await local.get(f"{path}/deliveries", params={"state": "delivered"}))["items"] == []
    assert good(await local.post(again))["state"] == "pending"
    (event,) = await fetch(shared, "select actor from grns.events where kind = 'evt.webhook.resent'")
    assert event["actor"] == actor_of(local)
    for wrong in ("0", "x", str(2**63)):
        assert problem_of(await local.get(f"{path}/deliveries/{wrong}"), 400) == "bad_parameter"
    assert problem_of(await local.get(f"{path}/deliveries/{told['seq'] + 100}"), 404) == "not_found"
    assert problem_of(await local.get(f"{path}/deliveries", params={"state": "lost"}), 400) == "bad_parameter"
    assert problem_of(await local.get(f"{path}/deliveries", params={"cursor": "x"}), 400) == "bad_cursor"
