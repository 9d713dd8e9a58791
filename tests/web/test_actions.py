"""What forms do: each does what it says, to what it says, and tells so; in a browser without scripts."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from grns.bootstrap import api as doors
from grns.bootstrap.app import App
from grns.dead_letters.store import RejectedMessage, store_rejected
from grns.dev.servers import LocalNats
from grns.model.filter import parse
from grns.model.url_policy import UrlPolicy
from grns.operations.service import list_operations
from grns.postgres.database import Database
from grns.stats import issues as issue
from grns.tasks import pauses as pause
from grns.tasks import saved_filters as saved_filter
from grns.tasks.follow_ups import FollowUps
from grns.web.app import make_site
from grns.webhooks.service import create_webhook
from tests.dead_letters.test_message import body
from tests.support.aggregators import begin_here, count_all
from tests.support.api import HERE, OURS, Door
from tests.support.budgets import look_at_budgets, note_usage
from tests.support.harness import manage, root_key, settings_for, submit, submit_many
from tests.support.operations import dead_tasks
from tests.support.store import ACTOR, FINGERPRINT, fetch, log_of, place, row_of
from tests.support.web import SECRET, Browser, Document, Hall, fields, furnish, page


def told(shown: Document) -> str:
    """Return what a page says above all else."""
    (notice,) = [one for one in shown.root.all("p") if one.get("class") == "notice"]
    return notice.text


# ---------------------------------------------------------------- one task


async def test_a_task_is_cancelled_redriven_and_discarded(guest: Browser, shared: Database) -> None:
    made = (await submit(shared)).id
    at = f"/tasks/{made}"
    assert "was cancelled" in told(await guest.send(at, f"{at}/cancel", reason="not needed"))
    assert "queued again" in told(await guest.send(at, f"{at}/redrive"))
    await guest.send(at, f"{at}/cancel")
    assert "Discarded" in told(await guest.send(at, f"{at}/discard"))
    assert (await row_of(shared, made))["discarded_by"].startswith("key:")
    events = await log_of(shared, made)
    cancelled = [json.loads(event["payload"]) for event in events if event["kind"] == "evt.task.cancelled"]
    assert cancelled[0]["reason"] == "not needed"


async def test_what_cannot_be_done_is_not_offered(guest: Browser, shared: Database) -> None:
    offered = {}
    for road in ("queued", "running", "dead", "succeeded", "waiting"):
        made = (await place(shared, road)).id
        shown = await guest.open(f"/tasks/{made}")
        actions = {form["action"].rpartition("/")[2] for form in shown.forms}
        links = {link.rpartition("/")[2] for link in shown.links}
        offered[road] = (actions & {"cancel", "redrive", "discard"}) | (links & {"edit"})
    assert offered == {
        "queued": {"cancel", "edit"},
        "running": {"cancel"},
        "dead": {"redrive", "discard", "edit"},
        "succeeded": set(),
        "waiting": {"cancel", "edit"},
    }


async def test_a_task_is_redriven_with_another_payload(guest: Browser, shared: Database) -> None:
    made = (await place(shared, "dead")).id
    at = f"/tasks/{made}/edit"
    shown = await guest.send(
        at, at, payload='{"n": 9007199254740993, "text": "\\u202e"}', priority="0", button=("redrive", "yes")
    )
    assert "queued again" in told(shown)
    row = await row_of(shared, made)
    assert json.loads(row["payload"]) == {"n": 9007199254740993, "text": "\u202e"}
    assert (row["priority"], row["status"]) == (0, "queued")


async def test_a_payload_that_nobody_touched_stays_as_it_is(guest: Browser, shared: Database) -> None:
    payload: dict[str, Any] = {"text": "a\r\nb\u202ec", "n": 2**53 + 1, "deep": [{"": None}], "f": 1.5}
    made = (await submit(shared, payload=payload)).id
    at = f"/tasks/{made}/edit"
    assert "was changed" in told(await guest.send(at, at, priority="1"))
    assert json.loads((await row_of(shared, made))["payload"]) == payload
    assert "was changed" in told(await guest.send(at, at, payload_seen="", priority="2"))
    assert json.loads((await row_of(shared, made))["payload"]) == payload, (
        "and as the form has it, it is the same"
    )


async def test_an_edit_of_what_is_otherwise_by_now_is_refused(guest: Browser, shared: Database) -> None:
    made = (await submit(shared)).id
    at = f"/tasks/{made}/edit"
    form = (await guest.open(at)).form(at)
    await guest.send(at, at, priority="0")
    shown = await guest.submit(form, priority="3", status=412)
    assert "load the page again" in shown.root.text
    assert (await row_of(shared, made))["priority"] == 0


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"payload": "{"}, "payload"),
        ({"payload": '{"a": 1, "a": 2}'}, "payload"),
        ({"payload": '{"a": 1e999}'}, "payload"),
        ({"payload": "[]"}, "payload"),
        ({"priority": "7"}, "priority"),
        ({"priority": "x"}, "priority"),
        ({"priority": "1e400"}, "priority"),
        ({"delay": "soon"}, "delay"),
        ({}, "an edit names"),
    ],
)
async def test_an_edit_that_makes_no_sense_says_why(
    guest: Browser, shared: Database, said: dict[str, str], words: str
) -> None:
    made = (await place(shared, "waiting")).id
    at = f"/tasks/{made}/edit"
    shown = await guest.send(at, at, status=400, more=said)
    assert words in shown.root.text


# ---------------------------------------------------------------- workflows, schedules and limits


async def test_a_workflow_is_paused_cancelled_and_redriven(guest: Browser, shared: Database) -> None:
    at = f"/workflows/{(await furnish(shared)).workflow}"
    shown = await guest.open(at)
    nodes = [[" ".join(text.text.split()) for text in one.all("text")] for one in shown.root.all("g")]
    assert nodes == [["fetch × 4", "4 queued"], ["report", "waiting"]]
    assert "no task that waits for others" in told(await guest.send(at, f"{at}/pause"))
    assert "Resumed" in told(await guest.send(at, f"{at}/resume"))
    assert "was started" in told(await guest.send(at, f"{at}/cancel", reason="wrong month"))
    (row,) = await fetch(shared, "select cancel_requested_at from grns.workflows where workspace = 'default'")
    assert row["cancel_requested_at"] is not None


async def test_a_schedule_is_paused_and_resumed(guest: Browser, shared: Database) -> None:
    at = f"/schedules/{(await furnish(shared)).schedule}"
    assert "is not submitted" in told(await guest.send(at, f"{at}/pause", reason="holidays"))
    assert "holidays" in (await guest.open(at)).root.text
    assert "Resumed" in told(await guest.send(at, f"{at}/resume"))
    assert "was submitted" in told(await guest.send(at, f"{at}/run"))
    assert "has not ended" in told(await guest.send(at, f"{at}/run"))


async def test_a_limit_shows_its_keys_and_is_paused_and_resumed(guest: Browser, shared: Database) -> None:
    at = f"/limits/{(await furnish(shared)).limit}"
    rows = [
        [cell.text.strip() for cell in row.all("td")][:3] for row in (await guest.open(at)).root.all("tr")
    ]
    assert rows == [[], ["2", "0", "0"], ["1", "0", "0"]]
    assert "no task that waits for room" in told(
        await guest.send(at, f"{at}/pause", reason="the disk is full")
    )
    assert "the disk is full" in (await guest.open(at)).root.text
    assert "Resumed" in told(await guest.send(at, f"{at}/resume"))
    assert "worker" in (await guest.open("/limits")).root.text


async def test_more_of_a_budget_is_allowed(guest: Browser, shared: Database) -> None:
    await furnish(shared)
    await note_usage(shared, cost=11)
    await look_at_budgets(shared)
    assert "The budget writing of this month is used up." in (await guest.open("/")).root.text
    shown = await guest.send("/usage", "/usage/writing/allow", more={"cost": "5.50"})
    assert "Allowed" in told(shown)
    assert "$11.00 of $15.50" in shown.root.text
    await guest.send("/usage", "/usage/writing/allow", status=400, more={"cost": "-1"})


# ---------------------------------------------------------------- many tasks


async def test_some_are_selected_counted_and_redriven(guest: Browser, shared: Database) -> None:
    ids = await dead_tasks(shared, 5)
    form = (await guest.open("/tasks?filter=status:dead")).form("/operations/new")
    chosen = [one["value"] for one in form.all("input") if one.get("name") == "id"]
    assert set(chosen) == set(ids)
    answer = await guest.client.get("/operations/new", params={"id": chosen[:2], "action": "redrive"})
    shown = Document(answer.text)
    assert "2 tasks" in shown.root.text
    done = await guest.submit(shown.form("/operations"), reason="mended")
    assert "was started" in told(done)
    (made,) = (await list_operations(shared, workspace="default", limit=10)).rows
    assert (made.matched, made.reason) == (2, "mended")
    assert made.created_by.startswith("key:")
    assert sorted(chosen[:2]) == sorted(made.filter.partition("id:")[2].split(","))


async def test_where_nothing_is_selected_nothing_is_meant(guest: Browser, shared: Database) -> None:
    """No filter is not all there is."""
    await dead_tasks(shared, 3)
    shown = await guest.open("/tasks")
    for action in ("redrive", "cancel", "discard"):
        chosen = await guest.submit(shown.form("/operations/new"), button=("action", action))
        assert "Nothing was selected" in chosen.root.text
        assert "3 tasks" not in chosen.root.text
        form = chosen.form("/operations")
        for to in ("/operations", "/operations/new"):
            assert "Write a filter" in (await guest.submit(form, to=to, seen="3", status=400)).root.text
    assert (await list_operations(shared, workspace="default", limit=10)).rows == []


async def test_all_that_match_means_the_filter_and_nothing_else(guest: Browser, shared: Database) -> None:
    await dead_tasks(shared, 60, task_type="noop")
    await saved_filter.save(shared, workspace="default", name="gone", wanted=parse("type:noop"), actor=None)
    shown = await guest.open("/tasks?saved=gone&filter=status:dead")
    (link,) = [link for link in shown.links if "action=discard" in link]
    counted = await guest.open(link)
    assert "60 tasks" in counted.root.text, "not only those of one page"
    wanted = dict(fields(counted.form("/operations")))["filter"]
    assert wanted == "type:noop status:dead"


async def test_many_are_begun_only_by_writing_their_number(guest: Browser, shared: Database) -> None:
    await begin_here(shared)
    await submit_many(shared, 101)
    await count_all(shared)
    at = "/operations/new?action=cancel&filter=type:noop"
    for written in ("", "100", "1e2", "many"):
        shown = await guest.send(at, "/operations", confirmation=written)
        assert shown.title == "New operation", written
        assert "To start, write the number" in shown.root.text
    assert (await list_operations(shared, workspace="default", limit=10)).rows == []
    shown = await guest.send(at, "/operations", confirmation="101")
    assert "was started" in told(shown)


async def test_what_has_grown_since_is_counted_again(guest: Browser, shared: Database) -> None:
    await begin_here(shared)
    await submit_many(shared, 3)
    await count_all(shared)
    form = (await guest.open("/operations/new?action=cancel&filter=type:noop")).form("/operations")
    await submit_many(shared, 3)
    await count_all(shared)
    again = await guest.submit(form)
    assert "The number of tasks has grown" in again.root.text
    assert "6 tasks" in again.root.text
    assert "was started" in told(await guest.submit(again.form("/operations")))


async def test_an_operation_is_written_counted_and_begun(guest: Browser, shared: Database) -> None:
    await dead_tasks(shared, 3)
    form = (await guest.open("/operations/new?action=redrive&filter=type:noop")).form("/operations")
    said = {"canary": "yes", "rate": "60", "patch": '{"n": 2}', "agent_type": "other", "reason": "mended"}
    again = await guest.submit(form, to="/operations/new", more=said)
    assert said.items() <= dict(fields(again.form("/operations"))).items()
    await guest.submit(again.form("/operations"))
    (made,) = (await list_operations(shared, workspace="default", limit=10)).rows
    assert (made.canary, made.rate_per_minute, made.patch, made.agent_type) == (True, 60.0, {"n": 2}, "other")
    assert made.reason == "mended"
    at = f"/operations/{made.id}"
    assert "Paused" in told(await guest.send(at, f"{at}/pause"))
    assert "Resumed" in told(await guest.send(at, f"{at}/resume"))
    assert "is cancelled" in told(await guest.send(at, f"{at}/cancel"))
    assert [form for form in (await guest.open(at)).forms if form["action"].startswith(at)] == []


@pytest.mark.parametrize(
    "said",
    [
        {"filter": "colour:red"},
        {"filter": "status:running"},
        {"patch": "{"},
        {"patch": "[]"},
        {"rate": "quick"},
        {"rate": "-1"},
        {"rate": "nan"},
        {"agent_type": "a.b"},
        {"action": "explode"},
        {"action": "discard", "canary": "yes"},
    ],
)
async def test_an_operation_that_makes_no_sense_is_shown_to_be_mended(
    guest: Browser, shared: Database, said: dict[str, str]
) -> None:
    form = (await guest.open("/operations/new?action=redrive&filter=type:noop")).form("/operations")
    for to in ("/operations/new", "/operations"):
        shown = await guest.submit(form, to=to, status=400, more=said)
        assert [one for one in shown.root.all("p") if one.get("role") == "alert"]
        kept = dict(fields(shown.form("/operations")))
        assert said.items() - {("action", "explode"), ("action", "discard")} <= kept.items()
    assert (await list_operations(shared, workspace="default", limit=10)).rows == []


# ---------------------------------------------------------------- issues, pools, views


async def test_something_is_said_of_an_issue(guest: Browser, shared: Database) -> None:
    await begin_here(shared)
    await place(shared, "dead")
    await count_all(shared)
    at = f"/issues/{FINGERPRINT}"
    stale = (await guest.open(at)).form(at)
    assert "was changed" in told(
        await guest.send(at, at, state="acknowledged", owner="ann", note="we <b>know</b>", snooze="1 hour")
    )
    found = await issue.read_issue(shared, workspace="default", fingerprint=FINGERPRINT)
    assert (found.state, found.owner, found.note) == ("acknowledged", "ann", "we <b>know</b>")
    assert found.snoozed_until is not None
    shown = await guest.submit(stale, state="ignored", status=412)
    assert "load the page again" in shown.root.text
    await guest.send(at, at, owner="", snooze="wake")
    found = await issue.read_issue(shared, workspace="default", fingerprint=FINGERPRINT)
    assert (found.state, found.owner, found.snoozed_until) == ("acknowledged", None, None)
    await guest.send(at, at, snooze="for ever", status=400)
    shown = await guest.open("/issues?state=acknowledged")
    assert at in shown.links
    assert at not in (await guest.open("/issues?state=new")).links


async def test_an_issue_without_open_tasks_is_said_to_be_resolved(guest: Browser, shared: Database) -> None:
    await begin_here(shared)
    made = (await place(shared, "dead")).id
    await count_all(shared)
    at = f"/issues/{FINGERPRINT}"
    assert "Mark as resolved" not in (await guest.open(at)).root.text
    await guest.send(f"/tasks/{made}", f"/tasks/{made}/redrive")
    await count_all(shared)
    shown = await guest.open(at)
    assert [link for link in shown.links if "action=redrive" in link] == [], "there is nothing to redrive"
    (form,) = [one for one in shown.forms if one["action"] == at and "Mark as resolved" in one.text]
    shown = await guest.submit(form, button=("state", "resolved"))
    assert "was changed" in told(shown)
    assert "Mark as resolved" not in "".join(one.text for one in shown.forms)
    assert (await issue.read_issue(shared, workspace="default", fingerprint=FINGERPRINT)).state == "resolved"


async def test_rows_stay_where_they_are_while_somebody_looks(guest: Browser, shared: Database) -> None:
    await begin_here(shared)
    first = await submit_many(shared, 3)
    shown = await guest.open("/tasks")
    there = [one["id"] for one in shown.root.all("tr") if one.get("id")]
    assert set(there) == {f"task-{one}" for one in first}
    (pulse,) = [one for one in shown.root.all("div") if one.get("id") == "auto-refresh"]
    await submit_many(shared, 2)
    again = await guest.open(pulse["hx-get"])
    rows = [one["id"] for one in again.root.all("tr") if one.get("id")]
    assert rows == there
    assert "2 other tasks match now" in again.root.text
    assert len([one for one in (await guest.open("/tasks")).root.all("tr") if one.get("id")]) == 5


async def test_a_pool_is_paused_and_resumed(guest: Browser, shared: Database) -> None:
    await submit(shared)
    assert "Paused" in told(await guest.send("/pools", "/pools/worker/pause"))
    assert "Resumed" in told(await guest.send("/pools", "/pools/worker/resume"))
    at = "/pools/worker"
    shown = await guest.send(at, f"{at}/pause", task_type="noop", lasts="1 hour", reason="deploy")
    assert shown.title == "worker"
    (found,) = await pause.in_force(shared, "default", ["worker"])
    assert (found.task_type, found.reason) == ("noop", "deploy")
    assert found.paused_by.startswith("key:")
    assert found.left_seconds == pytest.approx(3600, abs=60)
    await guest.send(at, f"{at}/resume")
    assert await pause.in_force(shared, "default", ["worker"]) == []
    await guest.send(at, f"{at}/pause", lasts="for ever", status=400)
    await guest.send(at, f"{at}/pause", task_type="a b", status=400)


async def test_a_pool_shows_its_follow_ups(guest: Browser, shared: Database) -> None:
    await submit(shared)
    assert "Follow-ups" not in (await guest.open("/pools/worker")).root.text
    tell = {"follows": "review", "outcome": "failure", "task_type": "tell_editor", "agent_type": "desk"}
    await FollowUps(shared, "default", "tests").put("worker", [tell])
    shown = (await guest.open("/pools/worker")).root.text
    assert all(word in shown for word in ("Follow-ups", "review", "failure", "tell_editor", "desk"))


@pytest.mark.parametrize("name", ["a", "a-", "-", "zz", "worker_2", "Z" * 64])
async def test_a_pool_is_found_by_its_name_among_others(guest: Browser, shared: Database, name: str) -> None:
    for one in {"a", "b", "worker", name}:
        await submit(shared, agent_type=one)
    assert (await guest.open(f"/pools/{name}")).title == name


async def test_a_view_is_saved_seen_and_forgotten(guest: Browser, shared: Database) -> None:
    shown = await guest.send("/tasks?filter=status:dead age:<1h", "/views", name="fresh")
    assert "was saved" in told(shown)
    assert "/tasks?saved=fresh" in shown.links
    assert "was deleted" in told(await guest.send("/tasks?saved=fresh", "/views/fresh/forget"))
    await guest.send("/tasks?filter=status:dead", "/views", name="a b", status=400)
    assert (await saved_filter.list_saved(shared, workspace="default", limit=10)).rows == []


# ---------------------------------------------------------------- keys, workspaces


async def test_keys_are_made_listed_and_revoked(hall: Hall) -> None:
    browser = await hall.logged_in("admin", workspace=None)
    at = f"/keys?workspace={OURS}"
    shown = await browser.send(at, "/keys", name="<i>ci</i>", expires="30d", button=("scope", "submit"))
    (key,) = [one.text for one in shown.root.all("pre")]
    assert key.startswith("grns_")
    (row, *_) = (await browser.open(at)).root.all("tr")[1:]
    assert [cell.text.strip() for cell in row.all("td")][:3] == ["<i>ci</i>", OURS, "submit"]
    assert key not in (await browser.client.get(at)).text
    key_id = key.split("_")[1]
    assert "was revoked" in told(await browser.send(at, f"/keys/{key_id}/revoke"))
    assert len([link for link in (await browser.open("/keys")).root.all("tr")]) == 3, "of all workspaces"
    for said in ({"name": ""}, {"name": "x", "expires": "soon"}, {"name": "x"}):
        await browser.send(at, "/keys", status=400, more=said)


async def test_a_workspace_is_made(hall: Hall, guest: Browser) -> None:
    shown = await guest.send("/workspaces", "/workspaces", name="fresh")
    assert "/?workspace=fresh" in shown.links
    await guest.send("/workspaces", "/workspaces", name="fresh", status=409)
    await guest.send("/workspaces", "/workspaces", name="a.b", status=400)


# ---------------------------------------------------------------- messages


async def test_a_message_is_closed(guest: Browser, shared: Database) -> None:
    there = await furnish(shared)
    at = f"/messages/{there.message}"
    assert "Discarded" in told(await guest.send(at, f"{at}/discard", reason="noise"))
    assert [form for form in (await guest.open(at)).forms if form["action"].startswith(at)] == []
    assert at not in (await guest.open("/messages")).links


async def test_a_message_is_mended_and_sent_again(shared: Database, broker: LocalNats) -> None:
    lost = RejectedMessage("unknown_task", "x", "cmd.task.execute.v1", "GRNS_CMD", 1, 1, {"A": "b"}, body())
    await store_rejected(shared, [lost])
    (letter,) = await fetch(shared, "select id from grns.dead_letters")
    at = f"/messages/{letter['id']}"
    hall = Hall(Door(shared))
    browser = await hall.logged_in("admin", workspace=None)
    transport = App(settings_for(shared.url, broker.url)).transport("test")
    hall.context.transport = transport
    await transport.connect()
    try:
        await transport.provision()
        await browser.send(at, f"{at}/resend", status=400, body="{}")
        await browser.send(at, f"{at}/resend", status=400, headers="[]")
        event, kind = "evt.task.completed.v1", "evt.task.completed"
        await browser.send(at, f"{at}/resend", status=400, subject=event, body=body(kind).decode())
        changed = json.loads(body()) | {"trace_id": "tr-mended"}
        shown = await browser.send(at, f"{at}/resend", body=json.dumps(changed), reason="mended")
        assert "sent again" in told(shown)
        sent = await transport.last_message("GRNS_CMD")
    finally:
        await browser.client.aclose()
        await transport.close()
    assert sent is not None
    assert json.loads(sent.body)["trace_id"] == "tr-mended"
    assert sent.headers["A"] == "b"


async def test_without_the_broker_a_message_waits(guest: Browser, shared: Database) -> None:
    there = await furnish(shared)
    at = f"/messages/{there.message}"
    shown = await guest.send(at, f"{at}/resend", status=503)
    assert "ask again later" in shown.root.text


# ---------------------------------------------------------------- webhooks


async def test_a_webhook_is_made_changed_and_deleted(hall: Hall) -> None:
    browser = await hall.logged_in("admin")
    form = {
        "url": "https://hooks.example.org/secret",
        "kinds": "evt.task.dead\nevt.issue.*",
        "description": "<b>",
    }
    shown = await browser.send("/webhooks", "/webhooks", more=form)
    (secret,) = [one.text for one in shown.root.all("pre")]
    assert secret.startswith("whsec_")
    (at,) = {link for link in shown.links if link.startswith("/webhooks/")}
    shown = await browser.open(at)
    assert "https://hooks.example.org/secret" in shown.root.text
    assert secret not in shown.root.text
    first = shown.form(at)
    shown = await browser.submit(first, kinds="evt.task.*")
    assert "was changed" in told(shown)
    late = await browser.submit(first, kinds="evt.task.failed", status=412)
    assert "input is kept" in "".join(one.text for one in late.root.all("p") if one.get("role") == "alert")
    assert [one.text.strip() for one in late.root.all("textarea")] == ["evt.task.failed"]
    shown = await browser.open(at)
    assert [one.text.strip() for one in shown.root.all("textarea")] == ["evt.task.*"]
    shown = await browser.submit(shown.form(at), without="is_enabled")
    assert "disabled" in shown.root.text
    rotated = await browser.send(at, f"{at}/rotate")
    assert [one.text for one in rotated.root.all("pre")] != [secret]
    assert "was deleted" in told(await browser.send(at, f"{at}/delete"))
    await browser.open(at, status=404)


@pytest.mark.parametrize(
    ("field", "text"), [("url", "http://127.0.0.1/"), ("url", "nonsense"), ("kinds", "tasks"), ("kinds", " ")]
)
async def test_a_webhook_that_makes_no_sense_is_shown_again(hall: Hall, field: str, text: str) -> None:
    browser = await hall.logged_in("admin")
    form = {"url": "https://hooks.example.org/x", "kinds": "evt.task.dead", field: text}
    shown = await browser.send("/webhooks", "/webhooks", status=400, more=form)
    assert shown.title == "Webhooks"
    assert [one for one in shown.root.all("p") if one.get("role") == "alert"]
    (url,) = [one["value"] for one in shown.root.all("input") if one.get("id") == "url"]
    assert url == form["url"]


async def test_a_delivery_is_seen_and_told_again(hall: Hall) -> None:
    browser = await hall.logged_in("operate", "read")
    _, row = await create_webhook(
        hall.database,
        workspace=OURS,
        url="https://hooks.example.org/secret",
        kinds=["evt.task.*"],
        guard=UrlPolicy(),
        actor=ACTOR,
    )
    at = f"/webhooks/{row.id}"
    shown = await browser.send(at, f"{at}/ping")
    assert "test event" in told(shown)
    assert "evt.webhook.pinged" in shown.title
    assert "secret" not in (await browser.open(at)).root.text.replace("secretsince", "")
    await fetch(
        hall.database,
        "update grns.webhook_deliveries set state = 'failed', due_at = null, claim_id = null, attempts = 11,"
        " attempted_at = now(), ended_at = now(), duration_ms = 5, status_code = 500, error = 'http_500'",
    )
    failed = await browser.open(f"{at}?state=failed")
    (link,) = {one for one in failed.links if "/deliveries/" in one}
    assert "http_500" in failed.root.text
    assert "sent again" in told(await browser.send(link, f"{link}/resend"))
    assert "no such deliveries" in (await browser.open(f"{at}?state=failed")).root.text


# ---------------------------------------------------------------- the installation


async def test_what_of_the_installation_is_wrong_is_told_also_without_a_broker(guest: Browser) -> None:
    shown = await guest.open("/installation")
    rows = [one.text for one in shown.root.all("tr")]
    assert any("error" in row and "broker" in row and "cannot be reached" in row for row in rows), rows
    assert "fallback polling" in shown.root.text


async def test_drift_of_streams_and_durables_is_shown(shared: Database, broker: LocalNats) -> None:
    app = App(settings_for(shared.url, broker.url))
    transport = app.transport("test")
    await transport.connect()
    try:
        await transport.provision()
        config = (await manage(broker.url, "STREAM.INFO.GRNS_EVT"))["config"]
        await manage(broker.url, "STREAM.UPDATE.GRNS_EVT", {**config, "duplicate_window": 60_000_000_000})
        site = make_site(doors.context(app, shared, transport), secret=SECRET)
        there = httpx2.ASGITransport(app=site, client=HERE)
        async with httpx2.AsyncClient(transport=there, base_url="http://localhost") as visitor:
            key = await root_key(shared)
            await visitor.post("/login", data={"key": key})
            said = (await visitor.get("/api/v1/doctor", headers={"Authorization": f"Bearer {key}"})).json()
            shown = page(await visitor.get("/installation"))
    finally:
        await transport.close()
    drift = {one["name"]: one["drift"] for one in said["streams"]}
    assert drift["GRNS_CMD"] == drift["GRNS_DLQ"] == []
    assert len(drift["GRNS_EVT"]) == 1, drift
    (difference,) = drift["GRNS_EVT"]
    assert said["worst"] in ("warning", "error")
    found = [one.text for one in shown.root.all("tr") if difference in one.text]
    assert len(found) == 2, "as a finding, and beside its stream"
