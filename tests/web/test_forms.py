"""Forms that cannot be taken as they are: they stand there again, with what was written and what is wrong."""

from __future__ import annotations

import pytest

from grns.postgres.database import Database
from grns.web.page_request import local_path, local_referer
from tests.support.store import place
from tests.support.web import Browser, Document, fields, furnish


def trouble_in(shown: Document, action: str) -> str:
    """Return what is wrong with a form, as it stands in it."""
    (found,) = [one for one in shown.form(action).all("p") if one.get("role") == "alert"]
    assert found.get("autofocus") is not None, "it is where one looks first"
    return found.text


@pytest.mark.parametrize(
    ("at", "action", "said", "wrong"),
    [
        ("/keys", "/keys", {"name": "<i>ci", "expires": "soon"}, "expires"),
        ("/keys", "/keys", {"name": "ci", "expires": "30d"}, "scope"),
        ("/webhooks", "/webhooks", {"url": "https://a.example/<i>", "kinds": "tasks"}, "kind"),
        ("/webhooks/{hook}", "/webhooks/{hook}", {"url": "http://127.0.0.1/", "kinds": "evt.*.*"}, "URL"),
        ("/workspaces", "/workspaces", {"name": "a.b"}, "workspace"),
        ("/pools/worker", "/pools/worker/pause", {"task_type": "a b", "lasts": "1 day"}, "task"),
        ("/tasks/{dead}/edit", "/tasks/{dead}/edit", {"payload": "{", "priority": "3"}, "payload"),
        ("/messages/{message}", "/messages/{message}/resend", {"headers": "[]", "subject": "a.b"}, "headers"),
        ("/issues/{fingerprint}", "/issues/{fingerprint}", {"snooze": "ever", "note": "<b>\nx"}, "snooze"),
    ],
)  # fmt: skip
async def test_what_was_written_is_still_there(
    guest: Browser, shared: Database, at: str, action: str, said: dict[str, str], wrong: str
) -> None:
    there = await furnish(shared)
    names = {"dead": there.dead, "message": there.message, "fingerprint": there.fingerprint}
    names["hook"] = there.webhook
    at, action = at.format(**names), action.format(**names)
    shown = await guest.send(at, action, status=400, more=said)
    assert wrong in trouble_in(shown, action)
    standing = dict(fields(shown.form(action)))
    chosen = {
        one.inside("select")["name"]: one.attributes.get("value", one.text)  # type: ignore[index]
        for one in shown.form(action).all("option")
        if one.get("selected") is not None
    }
    kept = {name: value for name, value in said.items() if name != "snooze"}
    assert {name: (standing | chosen)[name] for name in kept} == kept
    pulses = [one["hx-get"] for one in shown.root.all("div") if one.get("id") == "auto-refresh"]
    for path in pulses:
        await guest.open(path)


async def test_scopes_that_were_ticked_stay_so(guest: Browser) -> None:
    form = (await guest.open("/keys")).form("/keys")
    shown = await guest.submit(form, name="", status=400, button=("scope", "read"))
    ticked = [one["value"] for one in shown.form("/keys").all("input") if one.get("checked") is not None]
    assert ticked == ["read"]


async def test_what_is_stale_says_so_and_keeps_what_was_written(guest: Browser, shared: Database) -> None:
    made = (await place(shared, "waiting")).id
    at = f"/tasks/{made}/edit"
    form = (await guest.open(at)).form(at)
    await guest.send(at, at, priority="0")
    shown = await guest.submit(form, payload='{"mine": 1}', priority="3", status=412)
    assert "load the page again" in trouble_in(shown, at)
    assert dict(fields(shown.form(at)))["payload"] == '{"mine": 1}'
    assert at in shown.links
    again = await guest.submit(shown.form(at), status=412)
    assert "load the page again" in trouble_in(again, at), "seen or not, it is not what was looked at"


async def test_a_problem_leads_back(guest: Browser) -> None:
    for referer, is_ours in (
        ("http://localhost/pools?cursor=x", True),
        ("http://elsewhere.example/pools?cursor=x", False),
        ("http://localhost//elsewhere.example", False),
        ("http://[", False),
    ):
        answer = await guest.client.get("/nothing", headers={"Referer": referer})
        shown = Document(answer.text)
        assert ("/pools?cursor=x" in shown.links) is is_ours
        assert not [link for link in shown.links if "elsewhere" in link]


@pytest.mark.parametrize("said", ["//a", "/\\a", "http://a", "a", "", "/ä", "/a b", None])
def test_addresses_of_others_are_not_ours(said: str | None) -> None:
    assert local_path(said) is None
    assert local_referer(f"http://here{said}", "here") is None
