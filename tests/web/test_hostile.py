"""What hostile data does to pages: nothing. It is shown as what it is."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from grns.dead_letters.store import RejectedMessage, store_rejected
from grns.model.filter import parse
from grns.model.outcome import Outcome, Verb
from grns.postgres.database import Database
from grns.settings import load
from grns.stats import issues as issue
from grns.tasks import pauses as pause
from grns.tasks import saved_filters as saved_filter
from grns.worker import registry as agent
from grns.worker.claims import Claimant, Claims
from grns.worker.finishes import Finish, Finishes
from tests.support.aggregators import begin_here, count_all
from tests.support.harness import submit
from tests.support.store import ACTOR, fetch
from tests.support.web import Browser, Document

# What closes elements, attributes and scripts, in whatever they are put; and what turns text around.
BREAKERS = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onfocus=alert(1) autofocus='",
    "</textarea><script>alert(1)</script>",
    "</title></head><body onload=alert(1)>",
    "--><svg onload=alert(1)>",
    "javascript:alert(1)",
    "{{ 7 * 191 }}{% raw %}",
    "<hx-partial hx-target=body><b>mine</b></hx-partial>",
    '<div hx-get="/logout" hx-trigger="load">',
    "&lt;b&gt;",
]
TURNERS = ["\u202e", "\u2066", "\u200f", "\u061c", "\u200b", "\ufeff", "\u2028", "\x1b", "\x07", "\U000e0041"]
HOSTILE = " ".join(BREAKERS) + " gnp.exe" + "".join(TURNERS)


def hold(shown: Document, text: str) -> None:
    """See to it that a page has nothing in it that data has made."""
    assert not [one for one in shown.root.all("script") if one.text.strip()]
    assert not shown.root.all("b", "body")[1:], "there is one body, and nothing bold"
    assert not [one for one in shown.root.all("img") if one["src"] == "x"]
    for one in shown.root.all():
        assert not [name for name in one.attributes if name.startswith("on")], one
        assert not one.attributes.get("href", "").startswith("javascript:")
        if one.get("hx-get") is not None:
            assert one["hx-get"].startswith(("/", "?")), one.attributes
            assert one["hx-get"] != "/logout"
    assert "1337" not in shown.root.text, "7 * 191: it is no template"
    for turner in TURNERS:
        assert turner not in _without_fields(text), repr(turner)


# A field for prose. Those for JSON say the same with escapes.
_PROSE = re.compile(r'<textarea(?![^>]* class="code")(?![^>]* hidden)[^>]*>.*?</textarea>', re.DOTALL)


def _without_fields(text: str) -> str:
    """Return what a page shows: what stands in a field has to come back as it was."""
    kept, rest = "", _PROSE.sub("", text)
    while 'value="' in rest:
        before, _, rest = rest.partition('value="')
        kept += before
        rest = rest.partition('"')[2]
    return kept + rest


async def _fail(database: Database, task_id: str, message: str, frames: list[str]) -> None:
    """Have a worker with a hostile name fail a task in a hostile way."""
    who = Claimant("worker-one", "default", "worker", {"noop": 3}, 15.0)
    await agent.register(database, who, concurrency=1, version=HOSTILE)
    claim = await Claims(database, who, batch_limit=10).claim(task_id, None)
    error = json.dumps({"class": HOSTILE[:255], "message": message, "frames": frames, "traceback": message})
    outcome = Outcome(
        Verb.FAIL, error=error, error_class=HOSTILE[:255], fingerprint="f" * 16, backoff_seconds=1.0
    )
    await Finishes(database, batch_limit=10).finish(Finish(claim, outcome, uuid4()))  # type: ignore[arg-type]


async def test_hostile_data_is_shown_as_what_it_is(guest: Browser, shared: Database) -> None:
    await begin_here(shared)
    payload: dict[str, Any] = {HOSTILE: HOSTILE, "list": [HOSTILE] * 3}
    key = "".join(letter for letter in HOSTILE if " " <= letter <= "~")[:250]
    made = await submit(shared, payload=payload, idempotency_key=key, trace_id="<script>/trace&\"'")
    await _fail(shared, made.id, HOSTILE, [HOSTILE, f"  {HOSTILE}"])
    await store_rejected(
        shared,
        [
            RejectedMessage("bad_json", HOSTILE, HOSTILE[:300], HOSTILE, 1, 1, {HOSTILE: HOSTILE}, one)
            for one in (HOSTILE.encode(), json.dumps({HOSTILE: HOSTILE}).encode(), b"\xff<script>\x00")
        ],
    )
    await pause.begin(
        shared,
        workspace="default",
        agent_type="worker",
        task_type=None,
        actor=ACTOR,
        reason=HOSTILE,
        until=None,
    )
    wanted = parse(f'error:"{_quoted(HOSTILE)}"')
    await saved_filter.save(shared, workspace="default", name="evil", wanted=wanted, actor=ACTOR)
    await count_all(shared)
    await issue.change_issue(
        shared, workspace="default", fingerprint="f" * 16, actor=ACTOR, note=HOSTILE, owner=HOSTILE[:255]
    )
    letters = await fetch(shared, "select id from grns.dead_letters")
    paths = [
        "/", "/issues", "/issues/ffffffffffffffff", "/tasks", "/tasks?saved=evil", f"/tasks/{made.id}",
        f"/tasks/{made.id}/edit", "/pools", "/pools/worker", "/workers", "/events", "/messages",
        *(f"/messages/{one['id']}" for one in letters),
    ]  # fmt: skip
    for path in paths:
        answer = await guest.client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        hold(Document(answer.text), answer.text)
    shown = await guest.open(f"/tasks/{made.id}")
    (held,) = [one for one in shown.root.all("pre") if one.get("id") == "payload-json"]
    assert json.loads(held.text) == payload, "and what is shown is all of it"
    assert "\\u202e" in held.text
    assert "⟨U+202E⟩" in shown.root.text


def _quoted(text: str) -> str:
    kept = "".join(letter for letter in text if letter.isprintable())
    return kept.replace("\\", "\\\\").replace('"', '\\"').replace("*", "\\*")


@pytest.mark.parametrize("hostile", [*BREAKERS, *TURNERS])
async def test_hostile_addresses_are_harmless(guest: Browser, hostile: str) -> None:
    for path in (
        "/tasks", "/issues", "/operations", "/operations/new", "/events", "/messages", "/pools", "/workers",
        "/login",
    ):  # fmt: skip
        for name in (
            "filter",
            "cursor",
            "saved",
            "state",
            "kind",
            "task_id",
            "workspace",
            "next",
            "said",
            "shown",
            "id",
        ):
            answer = await guest.client.get(path, params={name: hostile})
            assert answer.status_code in (200, 303, 400, 404), (path, name, answer.text)
            if answer.status_code != 303:
                hold(Document(answer.text), answer.text)
            else:
                assert answer.headers["location"] in ("/", "/login")
    answer = await guest.client.get(f"/tasks/{quote(hostile)}")
    # What has a slash in it may look like where a form leads.
    assert answer.status_code in ((404, 405) if "/" in hostile else (404,))
    hold(Document(answer.text), answer.text)


async def test_the_largest_payload_is_shown_whole(guest: Browser, shared: Database) -> None:
    limit = load().payload_max_bytes
    texts = ["<b>" + "\u202e" * 1000 + "x" * 20_000 for _ in range(5)]
    payload = {"texts": texts, "rest": ""}
    payload["rest"] = "<" * (min(60_000, limit - len(json.dumps(payload, ensure_ascii=False).encode()) - 10))
    made = await submit(shared, payload=payload)
    answer = await guest.client.get(f"/tasks/{made.id}")
    shown = Document(answer.text)
    hold(shown, answer.text)
    (held,) = [one for one in shown.root.all("pre") if one.get("id") == "payload-json"]
    assert json.loads(held.text) == payload
    assert answer.elapsed.total_seconds() < 2.0


async def test_a_page_of_deep_and_strange_json_is_shown(guest: Browser, shared: Database) -> None:
    deep: Any = 1
    for _ in range(60):
        deep = {"": deep}
    payload = {
        "deep": deep,
        "__proto__": {"x": 1},
        "constructor": "x",
        "items": [],
        "n": -(2**63),
        "f": 1e-300,
    }
    made = await submit(shared, payload=payload)
    shown = await guest.open(f"/tasks/{made.id}")
    (held,) = [one for one in shown.root.all("pre") if one.get("id") == "payload-json"]
    assert json.loads(held.text) == payload
