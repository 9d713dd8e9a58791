"""The dashboard's pages: each is there, with and without data, and leads on without any script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import httpx2
import pytest

from grns.model.outcome import Outcome, Verb
from grns.postgres.database import Database
from grns.telemetry.service_signals import RequestAnswered, RequestCrashed
from grns.web.app import PAGES
from grns.web.page_request import NAVIGATION
from grns.worker.finishes import Finish, Finishes
from grns.worker.progress import ProgressStore, Report
from grns.worker.step_store import StepStore
from tests.support.aggregators import count_all
from tests.support.followers import begin_here, follow
from tests.support.harness import submit
from tests.support.store import FINGERPRINT, claim, fetch, finish
from tests.support.web import Browser, Document, Element, Hall, fields, furnish, page, resolved

ROOMS = [one.path for one in NAVIGATION] + ["/help", "/operations/new"]


def test_pages_have_names_of_their_own() -> None:
    assert len({page.name for page in PAGES}) == len(PAGES)
    assert {page.path for page in PAGES if page.is_public} == {"/login", "/q/{question_id}"}
    assert {page.method for page in PAGES} == {"GET", "POST"}
    shown = {page.path for page in PAGES if page.method == "GET"}
    assert set(ROOMS) <= shown


@pytest.mark.parametrize("path", ROOMS)
async def test_a_page_is_there_where_nothing_is_yet(guest: Browser, path: str) -> None:
    shown = await guest.open(path)
    check(shown)
    current = [one["href"] for one in shown.root.all("a") if one.get("aria-current") and one.inside("header")]
    assert current == [one.path for one in NAVIGATION if one.is_current(path)]


async def test_blobs_of_a_task_are_downloaded(guest: Browser, shared: Database) -> None:
    text = "select grns.put_blob(convert_to('the report', 'utf8'), 'text/plain') ->> '$blob' as id"
    (kept,) = await fetch(shared, text)
    task_id = (await submit(shared, payload={"file": {"$blob": kept["id"]}})).id
    shown = await guest.open(f"/tasks/{task_id}")
    (link,) = [one["href"] for one in shown.root.all("a") if "/blobs/" in (one.get("href") or "")]
    answer = await guest.client.get(link)
    assert (answer.status_code, answer.text) == (200, "the report")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["content-disposition"].startswith("attachment")


async def test_everything_that_a_page_leads_to_is_there(guest: Browser, shared: Database) -> None:
    """All links of the first pages are followed, and all forms that only look are sent.

    Further on, of what is asked for in the same way one is enough: filters of filters have no end.
    """
    there = await furnish(shared)
    first = list(dict.fromkeys(["/", *ROOMS, *there.places]))
    waiting, seen, ways, sent = [*first], set[str](), set[Any](), set[Any]()
    while waiting:
        path = waiting.pop(0)
        if path in seen or (way(path) in ways and path not in first):
            continue
        seen.add(path)
        shown = await guest.open(path)
        check(shown)
        links = [found for link in shown.links if (found := resolved(path, link)).startswith("/")]
        waiting += links
        if path in ("/", *ROOMS, *there.places):
            first += links
        ways.add(way(path))
        for form in shown.forms:
            said = (form["action"], *fields(form))
            if form.attributes.get("method", "get") == "get" and said not in sent:
                sent.add(said)
                await guest.submit(form, button=("action", "redrive"), filter="status:dead")
        assert len(seen) < 300, sorted(seen)
    assert {urlsplit(path).path for path in seen} >= {*there.places, *ROOMS}
    assert any("state=resolved" in path for path in seen)


def way(path: str) -> tuple[str, tuple[str, ...]]:
    """Return what an address asks for, whatever it says of it."""
    parts = urlsplit(path)
    return parts.path, tuple(sorted(name for name, _ in parse_qsl(parts.query)))


def check(shown: Document) -> None:
    """Hold a page against what everybody needs of it: with a keyboard, a screen reader, no scripts."""
    everything = shown.root.all()
    ids = [one["id"] for one in everything if one.get("id")]
    assert len(set(ids)) == len(ids), sorted(ids)
    assert [one.tag for one in everything if one.tag in ("header", "main", "footer")] == [
        "header",
        "main",
        "footer",
    ]
    assert len(shown.root.all("h1")) == 1
    assert shown.root.all("html")[0]["lang"] == "en"
    assert shown.root.all("title")[0].text.strip().endswith("grns")
    levels = [int(one.tag[1]) for one in shown.root.all("h1", "h2", "h3")]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    labelled = {one["for"] for one in everything if one.tag == "label" and one.get("for")}
    for one in _fields(everything):
        assert one.get("aria-label") or one.inside("label") or one.get("id") in labelled, one.attributes
    for form in shown.forms:
        assert form["action"].startswith("/"), "it leads nowhere else"
        if form["method"] == "post":
            assert [
                one for one in form.all("input") if one.get("name") == "_token" and len(one["value"]) == 64
            ]
        else:
            assert not [one for one in form.all("input") if one.get("name") == "_token"], (
                "it would stand in addresses"
            )
        assert form.all("button", "input")
    for image in shown.root.all("img"):
        assert image.get("alt") is not None
    for svg in shown.root.all("svg"):
        assert svg.get("aria-label") or svg.get("aria-hidden") == "true"
    for button in shown.root.all("button"):
        assert button.text.strip() or button.get("aria-label")
    for name in ("aria-labelledby", "aria-describedby", "list", "for"):
        for one in everything:
            assert one.get(name) is None or one[name] in ids, (one.tag, name, one.get(name))
    for one in everything:
        said = [value for name, value in one.attributes.items() if name != "value"]
        assert not [value for value in said if value.startswith(("http://", "https://", "//"))], one


def _fields(everything: list[Element]) -> Iterator[Element]:
    for one in everything:
        if (
            one.tag in ("input", "select", "textarea")
            and one.get("type") != "hidden"
            and one.get("hidden") is None
        ):
            yield one


async def test_a_page_that_asks_for_itself_again_has_all_parts_that_it_replaces(
    guest: Browser, shared: Database
) -> None:
    there = await furnish(shared)
    for path in ("/", "/issues", "/tasks", "/pools", "/workers", *there.places):
        shown = await guest.open(path)
        for pulse in [one for one in shown.root.all("div") if one.get("id") == "auto-refresh"]:
            answer = await guest.client.get(pulse["hx-get"], headers={"HX-Request": "true"})
            again = {one.get("id") for one in page(answer).root.all()}
            parts = [part.removeprefix("#").partition(":")[0] for part in pulse["hx-select-oob"].split(",")]
            assert parts
            assert set(parts) <= again & {one.get("id") for one in shown.root.all()}, path


async def test_what_is_not_there_is_told_on_a_page(guest: Browser) -> None:
    for path in (
        "/nothing", "/tasks/gr-nothing", "/tasks/a%20b", "/issues/beef", "/operations/7", "/pools/nobody",
        "/messages/7", "/messages/00000000-0000-0000-0000-000000000001", "/views",
    ):  # fmt: skip
        answer = await guest.client.get(path)
        if path == "/views":
            assert page(answer, 405).title == "Method Not Allowed"
        else:
            assert page(answer, 404).title == "Not Found"


async def test_a_filter_that_is_wrong_is_shown_to_be_mended(guest: Browser) -> None:
    shown = await guest.open("/tasks?filter=colour:red", status=400)
    assert [one["value"] for one in shown.root.all("input") if one.get("id") == "filter"] == ["colour:red"]
    (trouble,) = [one for one in shown.root.all("p") if one.get("id") == "filter-error"]
    assert "there is no such term" in trouble.text
    assert (await guest.open("/events?kind=nonsense", status=400)).title == "Events"
    assert (await guest.open("/operations/new?filter=colour:red", status=400)).title == "New operation"
    await guest.open("/tasks?cursor=nonsense", status=400)
    await guest.open("/tasks?saved=nothing", status=400)


async def test_a_filter_goes_on_as_one_writes(guest: Browser) -> None:
    answer = await guest.client.get("/tasks/completions", params={"filter": "type:noop status:de"})
    options = Document(answer.text).root.all("option")
    assert [one["value"] for one in options] == ["type:noop status:dead"]


async def test_a_whole_id_leads_to_its_task(guest: Browser, shared: Database) -> None:
    there = await furnish(shared)
    assert (await guest.open(f"/tasks?filter={there.dead}")).title == there.dead


async def test_pages_of_a_failed_task_and_its_issue_show_the_traceback(
    guest: Browser, shared: Database
) -> None:
    """Newcomer 15: the dashboard had frames, and the traceback was in the worker's log alone."""
    owner = await claim(shared, (await submit(shared)).id)
    error = {"class": "ValueError", "message": "no", "frames": [], "traceback": "Traceback\n  <here>"}
    outcome = Outcome(Verb.FAIL, error=json.dumps(error), error_class="ValueError", fingerprint=FINGERPRINT)
    await Finishes(shared, batch_limit=1).finish(Finish(owner, outcome, uuid4()))
    await count_all(shared)
    for path in (f"/tasks/{owner.id}", f"/issues/{FINGERPRINT}"):
        answer = await guest.client.get(path)
        assert "Traceback\n  &lt;here&gt;" in answer.text, path


async def test_page_of_a_task_shows_its_steps(guest: Browser, shared: Database) -> None:
    owner = await claim(shared, (await submit(shared)).id)
    await StepStore(shared, batch_limit=1).record(owner, "plan <1>", "step", '{"found": "<b>"}')
    shown = await guest.open(f"/tasks/{owner.id}")
    check(shown)
    answer = await guest.client.get(f"/tasks/{owner.id}")
    assert "plan &lt;1&gt;" in answer.text
    assert "&lt;b&gt;" in answer.text


@pytest.mark.parametrize(("verb", "is_shown"), [(Verb.SUCCEED, False), (Verb.FAIL, True)])
async def test_page_of_an_ended_task_shows_how_far_it_came_unless_it_succeeded(
    guest: Browser, shared: Database, verb: Verb, is_shown: bool
) -> None:
    owner = await claim(shared, (await submit(shared)).id)
    await ProgressStore(shared, batch_limit=1).write(owner, Report(percent=70, step="reads page 7"))
    assert (await guest.open(f"/tasks/{owner.id}")).root.all("progress")
    await finish(shared, owner, verb)
    assert bool((await guest.open(f"/tasks/{owner.id}")).root.all("progress")) is is_shown


async def test_page_of_a_workflow_leads_to_the_task_it_was_escalated_to(
    guest: Browser, shared: Database
) -> None:
    await begin_here(shared)
    call = {"task_type": "call_a_human", "agent_type": "ops", "payload": {"team": "imports"}}
    wanted = {"name": "import", "fail_after": {"count": 1, "then": call}}
    graph = [{"task_type": "noop"}, {"task_type": "noop"}]
    made = await shared.run("submit_graph", json.dumps(graph), "default", None, json.dumps(wanted))
    (workflow,) = await fetch(shared, "select id from grns.workflows")
    path = f"/workflows/{workflow['id']}"
    assert "escalated to" not in (await guest.open(path)).root.text
    await finish(shared, await claim(shared, made[0]["task_id"]), Verb.FAIL)
    await follow(shared)
    (task,) = await fetch(shared, "select id from grns.tasks where task_type = 'call_a_human'")
    shown = await guest.open(path)
    assert "escalated to" in shown.root.text
    (link,) = [link for link in shown.links if task["id"] in link]
    answer = await guest.client.get(resolved(path, link))
    assert "imports" in answer.text
    assert workflow["id"] in answer.text


async def test_a_bug_is_answered_with_a_page_and_a_trace_id(
    hall: Hall, guest: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grns.web.overview.charts.per_minute", lambda *_: 1 / 0)
    shown = await guest.open("/", status=500)
    assert "this is a bug in grns" in shown.root.text
    (broke,) = hall.door.emitted.of(RequestCrashed)
    assert broke.operation == "web_overview"
    assert "ZeroDivisionError" in broke.exception
    assert broke.trace_id in shown.root.text


async def test_a_database_that_is_away_is_told(hall: Hall, guest: Browser) -> None:
    await hall.database.close()
    shown = await guest.open("/", status=503)
    assert "nothing was changed" in shown.root.text
    await hall.database.connect()


async def test_only_what_somebody_has_sent_is_counted(hall: Hall, guest: Browser) -> None:
    """What a page asks of the API from within is no request."""
    await guest.open("/")
    assert [signal.operation for signal in hall.door.emitted.of(RequestAnswered)] == [
        "web_log_in",
        "web_overview",
    ]


async def test_the_api_is_where_it_was(hall: Hall, guest: Browser) -> None:
    answer = await guest.client.get("/api/v1/counts")
    assert answer.status_code == 401, "a session opens pages, and not the API"
    answer = await guest.client.get("/api/v1/counts", headers=await hall.door.shown())
    assert answer.json()["total"] == 0
    assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert (await guest.client.get("/api/nothing")).json()["code"] == "not_found"
    assert (await guest.client.get("/livez")).json() == {"status": "ok"}


async def test_files_are_served_and_nothing_else(guest: Browser) -> None:
    shown = await guest.open("/")
    for one in shown.root.all("script", "link", "img"):
        answer = await guest.client.get(one.get("src") or one["href"])
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"
    again = await guest.client.get(
        "/static/app.css", headers={"If-None-Match": answer_tag(await guest.client.get("/static/app.css"))}
    )
    assert again.status_code == 304
    for path in (
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/vendor/README.md",
        "/static/",
        "/static/nothing.js",
    ):
        assert (await guest.client.get(path)).status_code == 404, path


def answer_tag(answer: httpx2.Response) -> str:
    """Return the edition of a file."""
    tag: str = answer.headers["etag"]
    return tag
