"""Who comes in with a browser, and what nobody can make it do."""

from __future__ import annotations

import re
from uuid import uuid4

import httpx2
import pytest

from grns.api.invitation import Invitation
from grns.errors import SettingsError
from grns.model.api_key import digest as digest_of
from grns.model.api_key import parse
from grns.settings import load
from grns.web.app import PAGES, make_site
from grns.web.authentication import COOKIE, Sessions
from grns.web.formatting import THEME, TIMES
from grns.web.page_request import WebPage
from tests.api.test_access import _theirs
from tests.support.api import HERE, OURS, THEIRS
from tests.support.harness import submit
from tests.support.store import fetch, row_of
from tests.support.web import SECRET, Browser, Document, Element, Hall, page

CLOSED = [page for page in PAGES if not page.is_public]
LOOKS = [page for page in CLOSED if page.method == "GET"]
DOES = [page for page in CLOSED if page.method == "POST"]
NOTHING = {
    "task_id": "gr-nothing", "message_id": str(uuid4()), "fingerprint": "0f0f", "number": "999999",
    "agent_type": "worker", "key_id": "0" * 20, "name": "nothing", "webhook_id": "wh-nothing", "seq": "7",
    "workflow_id": "wf-nothing", "schedule": "nothing", "limit": "nothing", "question_id": str(uuid4()),
    "blob_id": f"sha256-{'0' * 64}", "budget": "nothing",
}  # fmt: skip
CHANGES = {
    "tasks": "cancel", "operations": "pause", "pools": "pause", "workflows": "pause", "schedules": "pause",
    "limits": "pause",
}  # fmt: skip


def named(page: WebPage) -> str:
    """Return a page's name, for the names of tests."""
    return page.name


def path_of(page: WebPage, names: dict[str, str]) -> str:
    """Return a page's address."""
    noun = page.path.split("/")[1]
    filled = {**names, "change": CHANGES.get(noun, "")}
    return re.sub(r"\{(\w+)(:int)?\}", lambda found: filled[found[1]], page.path)


# ---------------------------------------------------------------- keys and sessions


@pytest.mark.parametrize("page", CLOSED, ids=named)
async def test_nobody_comes_in_without_a_key_once_there_is_one(hall: Hall, page: WebPage) -> None:
    await hall.door.key()
    forged = Sessions("another secret" * 3).begin("0" * 20, bytes(32))
    for cookies in ({}, {COOKIE: "nonsense"}, {COOKIE: forged}):
        async with hall.visitor() as visitor:
            visitor.cookies.update(cookies)
            answer = await visitor.request(page.method, path_of(page, NOTHING))
            assert answer.status_code == 303, answer.text
            assert answer.headers["location"].partition("?")[0] == "/login"


async def test_somebody_logs_in_sees_what_they_wanted_and_leaves(hall: Hall) -> None:
    key = await hall.door.key("admin")
    async with hall.visitor() as visitor:
        browser = Browser(visitor, hall)
        asked = await browser.open("/tasks?filter=status:dead")
        assert asked.title == "grns"
        shown = await browser.submit(asked.form("/login"), key="grns_nonsense", status=403)
        assert "not known" in shown.root.text
        assert COOKIE not in visitor.cookies
        shown = await browser.submit(asked.form("/login"), key=key)
        assert shown.title == "Tasks"
        (wanted,) = [one["value"] for one in shown.root.all("input") if one.get("id") == "filter"]
        assert wanted == "status:dead"
        assert key.split("_")[2] not in visitor.cookies[COOKIE], "the secret stays with whoever has it"
        assert (await browser.open("/login")).title == "Overview"
        kept = visitor.cookies[COOKIE]
        left = await browser.submit(shown.form("/logout"))
        assert left.title == "grns"
        assert COOKIE not in visitor.cookies
        visitor.cookies[COOKIE] = kept
        assert (await visitor.get("/tasks")).status_code == 303, "L3: the cookie worked on for 12 h"


async def test_session_made_with_the_secret_and_the_id_of_a_key_is_refused(hall: Hall) -> None:
    """L3: the installation's secret and a key's id, which lists show, made a session of that key."""
    shown = parse(await hall.door.key("admin"))
    sessions = Sessions(SECRET)
    async with hall.visitor() as visitor:
        for digest, status in ((digest_of(shown.secret), 200), (bytes(32), 303), (b"", 303)):
            visitor.cookies[COOKIE] = sessions.begin(shown.id, digest)
            assert (await visitor.get("/keys")).status_code == status


async def test_form_of_a_stranger_is_read_no_further_than_a_key_is_long(hall: Hall) -> None:
    """L17: `/login` read 2 MB from anybody."""
    async with hall.visitor() as visitor:
        for length, status in ((8_000, 403), (9_000, 413)):
            answer = await visitor.post("/login", data={"key": "x" * length})
            assert answer.status_code == status


async def test_a_session_is_a_cookie_that_scripts_and_other_sites_never_get(hall: Hall) -> None:
    async with hall.visitor() as visitor:
        for headers, is_secure in (({}, False), ({"X-Forwarded-Proto": "https"}, True)):
            answer = await visitor.post("/login", data={"key": await hall.door.key()}, headers=headers)
            (kept,) = answer.headers.get_list("set-cookie")
            said = {part.strip().lower() for part in kept.split(";")[1:]}
            assert {"httponly", "samesite=strict", "path=/"} <= said
            assert not any(part.startswith(("max-age", "expires", "domain")) for part in said)
            assert ("secure" in said) is is_secure
            assert kept.startswith("__Host-") is is_secure


async def test_a_session_ends_with_its_key(hall: Hall) -> None:
    for ending in ("revoked_at = now()", "expires_at = now() - interval '1 s'"):
        browser = await hall.logged_in("read")
        assert (await browser.open("/")).title == "Overview"
        await fetch(hall.database, f"update grns.api_keys set {ending}")
        assert (await browser.open("/")).title == "grns"
        # A page that asks for itself again is loaded anew, and leads to where one logs in.
        answer = await browser.client.get("/", headers={"HX-Request": "true"})
        assert (answer.status_code, answer.headers["hx-refresh"]) == (401, "true")


def test_a_session_ends_after_half_a_day() -> None:
    now = 1_800_000_000.0
    sessions = Sessions("s" * 32, clock=lambda: now)
    cookie = sessions.begin("0" * 20, b"digest")
    others = Sessions("s" * 32, clock=lambda: now)
    found = others.read(cookie)
    assert found is not None
    assert others.is_signed(found, b"digest")
    for changed in (cookie[:-1], "1" + cookie[1:], cookie.replace(".1", ".2", 1), cookie + ".", "", None):
        wrong = sessions.read(changed)
        assert wrong is None or not sessions.is_signed(wrong, b"digest"), changed
    now += 12 * 3600
    assert sessions.read(cookie) is None


@pytest.mark.parametrize(
    "back", ["//evil.example", "/\\evil.example", "https://evil.example", "a", "/a\nb", ""]
)
async def test_logging_in_leads_to_no_other_site(hall: Hall, back: str) -> None:
    async with hall.visitor() as visitor:
        answer = await visitor.post("/login", data={"key": await hall.door.key(), "next": back})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        answer = await visitor.get("/login", params={"next": back})
        assert answer.headers["location"] == "/"


async def test_no_answer_and_no_fact_has_a_secret(hall: Hall) -> None:
    key = await hall.door.key("admin")
    browser = await hall.logged_in("admin", workspace=None)
    for path in ("/", "/keys", f"/keys?cursor={key}", f"/tasks?filter={key}", f"/login?next=/{key}"):
        answer = await browser.client.get(path)
        assert key.split("_")[2] not in answer.text.replace(key, ""), path
    assert key.split("_")[2] not in repr(hall.door.emitted.seen)


# ---------------------------------------------------------------- without a key


@pytest.mark.parametrize(
    ("address", "headers", "status"),
    [
        ("127.0.0.1", {}, 303),
        ("::1", {}, 303),
        ("10.0.0.7", {}, 303),
        ("127.0.0.1", {"Host": "localhost"}, 303),
        ("127.0.0.1", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}, 403),
    ],
)
async def test_page_without_a_session_is_shown_to_nobody(
    hall: Hall, address: str, headers: dict[str, str], status: int
) -> None:
    """H3: without any key, whoever seemed to be on this machine was shown everything."""
    async with hall.visitor(address=(address, 1), **headers) as visitor:
        assert (await visitor.get("/")).status_code == status


async def test_bootstrap_url_creates_the_first_key_shows_it_and_logs_in(hall: Hall) -> None:
    """H3: a new installation is opened with the URL that its API prints."""
    path = hall.context.invitation.path()
    async with hall.visitor() as visitor:
        browser = Browser(visitor, hall)
        asked = await browser.open(path)
        assert not await fetch(hall.database, "select from grns.api_keys"), "looking creates nothing"
        shown = await browser.submit(asked.form("/login"))
        (made,) = [one.text for one in shown.root.all("pre")]
        async with hall.door.visitor(made) as holder:
            assert (await holder.get("/api/v1/counts")).status_code == 200
        assert (await browser.open("/keys")).title == "Keys"
    async with hall.visitor() as visitor:
        browser = Browser(visitor, hall)
        late = await browser.open(path)
        assert hall.context.invitation.token not in str([one.attributes for one in late.root.all("input")])
        refused = await browser.submit(late.form("/login"), key=hall.context.invitation.token, status=403)
        assert "not known" in refused.root.text
    assert len(await fetch(hall.database, "select from grns.api_keys")) == 1


async def test_url_of_an_invitation_with_a_key_logs_in(hall: Hall) -> None:
    """H3: `grns dev` prints a URL that opens the dashboard, for whoever has it and nobody else."""
    hall.context.invitation = invitation = Invitation(key=await hall.door.key("admin", workspace=None))
    for path, title in ((invitation.path(), "Overview"), (f"{invitation.path()}0", "grns"), ("/", "grns")):
        async with hall.visitor() as visitor:
            assert (await Browser(visitor, hall).open(path)).title == title
    async with hall.visitor() as visitor:
        browser = Browser(visitor, hall)
        entered = await browser.submit((await browser.open("/login")).form("/login"), key=invitation.token)
        assert entered.title == "Overview"
    async with hall.door.visitor(invitation.token) as visitor:
        assert (await visitor.get("/api/v1/counts")).status_code == 401, "it is no key"


async def test_whoever_follows_a_link_from_elsewhere_keeps_their_session(hall: Hall) -> None:
    """Browsers send the cookie only with what a page of ours asks for: one leads on to the same place."""
    await hall.door.key()
    async with hall.visitor(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate") as visitor:
        answer = await visitor.get("/tasks")
    (again,) = [one for one in page(answer).root.all("meta") if one.get("http-equiv")]
    assert again.attributes == {"http-equiv": "refresh", "content": "0"}


# ---------------------------------------------------------------- forms of others


@pytest.mark.parametrize("page", DOES, ids=named)
async def test_a_form_that_is_none_of_ours_does_nothing(hall: Hall, page: WebPage) -> None:
    browser = await hall.logged_in("admin", workspace=None)
    other = await hall.logged_in("admin", workspace=None)
    path = path_of(page, NOTHING)
    theirs = _token(await other.open("/"))
    for token in ("", "x", theirs):
        answer = await browser.client.post(path, data={"_token": token})
        assert answer.status_code == 403, path
        assert "load it again" in answer.text
    ours = _token(await browser.open("/"))
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"},
    ):
        answer = await browser.client.post(path, data={"_token": ours}, headers=headers)
        assert answer.status_code == 403, (path, headers)
        assert "another site" in answer.text
    for headers in ({"Origin": "http://localhost"}, {"Sec-Fetch-Site": "same-origin"}):
        answer = await browser.client.post(path, data={"_token": ours}, headers=headers)
        assert answer.status_code != 403, answer.text


async def test_nobody_is_logged_in_by_another_site(hall: Hall) -> None:
    async with hall.visitor(Origin="https://evil.example") as visitor:
        answer = await visitor.post("/login", data={"key": await hall.door.key()})
        assert answer.status_code == 403
        assert COOKIE not in visitor.cookies


@pytest.mark.parametrize(
    ("content", "kind", "code"),
    [
        (b"{}", "application/json", 415),
        (b"a=1", "multipart/form-data; boundary=x", 415),
        (b"a=" + b"x" * 3_000_000, "application/x-www-form-urlencoded", 413),
        (b"&".join(b"a=1" for _ in range(1000)), "application/x-www-form-urlencoded", 400),
        (b"a=\xff", "application/x-www-form-urlencoded", 400),
        (b"a=%ff", "application/x-www-form-urlencoded", 400),
    ],
)
async def test_what_is_no_form_is_refused(guest: Browser, content: bytes, kind: str, code: int) -> None:
    answer = await guest.client.post("/preferences", content=content, headers={"Content-Type": kind})
    assert page(answer, code).title


def _token(shown: Document) -> str:
    return next(one["value"] for one in shown.root.all("input") if one.get("name") == "_token")


# ---------------------------------------------------------------- scopes and workspaces


async def test_whoever_may_only_look_is_shown_nothing_to_do(hall: Hall) -> None:
    made = (await submit(hall.database, workspace=OURS)).id
    browser = await hall.logged_in("read")
    for path in ("/", "/tasks", f"/tasks/{made}", "/pools", "/operations", "/workspaces"):
        shown = await browser.open(path)
        posts = {form["action"] for form in shown.forms if form.get("method") == "post"}
        assert posts == {"/preferences", "/logout"}, path
        assert "Keys" not in [link.text for link in shown.root.all("a")]
    assert (await browser.open("/keys", status=403)).title == "Forbidden"
    token = _token(await browser.open("/"))
    for path in (
        f"/tasks/{made}/cancel",
        "/pools/worker/pause",
        "/operations",
        "/views",
        "/keys",
        "/workspaces",
    ):
        sent = {"_token": token, "action": "cancel", "name": "x"}
        answer = await browser.client.post(path, data=sent)
        assert answer.status_code == 403, path
    assert (await row_of(hall.database, made))["status"] == "queued"


async def test_what_is_of_another_workspace_does_not_exist(hall: Hall) -> None:
    names = await _theirs(hall.database)
    browser = await hall.logged_in("admin")
    token = _token(await browser.open("/"))
    for one in LOOKS:
        if one.name == "web_follow_events":
            continue  # it goes on for ever: tests/web/test_event.py reads it
        answer = await browser.client.get(path_of(one, names))
        if "{" in one.path and "{agent_type}" not in one.path:
            assert answer.status_code == 404, one.name
        assert THEIRS not in answer.text, one.name
    for one in DOES:
        if "{" not in one.path or "{agent_type}" in one.path:
            continue
        answer = await browser.client.post(
            path_of(one, names), data={"_token": token, "state": "ignored", "priority": "1", "type": "x"}
        )
        assert answer.status_code == 404, (one.name, answer.text)
        assert THEIRS not in answer.text, one.name


@pytest.mark.parametrize("page", CLOSED, ids=named)
async def test_another_workspace_cannot_be_named(hall: Hall, page: WebPage) -> None:
    if page.path in ("/logout", "/preferences", "/help"):
        return  # they are about nothing in a workspace
    browser = await hall.logged_in("admin")
    token = _token(await browser.open("/"))
    answer = await browser.client.request(
        page.method,
        path_of(page, NOTHING),
        params={"workspace": THEIRS},
        data={"_token": token, "action": "cancel", "name": "x"} if page.method == "POST" else None,
    )
    assert answer.status_code == 404, answer.text


async def test_whoever_sees_all_workspaces_stays_in_the_one_that_they_chose(hall: Hall) -> None:
    made = (await submit(hall.database, workspace=THEIRS)).id
    browser = await hall.logged_in("admin", workspace=None)
    assert (await browser.open(f"/tasks/{made}", status=404)).title == "Not Found"
    shown = await browser.submit((await browser.open("/tasks")).form_with("workspace"), workspace=THEIRS)
    assert f"/tasks/{made}?workspace={THEIRS}" in shown.links
    home = {link for link in shown.links if link.startswith("/") and not link.startswith("/static")}
    assert all(f"workspace={THEIRS}" in link for link in home if "login" not in link), home
    done = await browser.send(f"/tasks/{made}?workspace={THEIRS}", f"/tasks/{made}/cancel")
    assert "was cancelled" in done.root.text
    assert (await row_of(hall.database, made))["status"] == "cancelled"


# ---------------------------------------------------------------- how it looks


async def test_colours_and_times_are_as_somebody_wants_them(hall: Hall, guest: Browser) -> None:
    await submit(hall.database)
    shown = await guest.open("/tasks")
    assert shown.root.all("html")[0]["data-theme"] == "auto"
    assert all(not one.text.startswith("20") for one in _times(shown))
    shown = await guest.submit(shown.form("/preferences"), button=("theme", "dark"))
    assert (shown.title, shown.root.all("html")[0]["data-theme"]) == ("Tasks", "dark")
    shown = await guest.submit(shown.form("/preferences"), button=("times", "utc"))
    assert shown.root.all("html")[0]["data-theme"] == "dark"
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC", one.text) for one in _times(shown))
    shown = await guest.submit(shown.form("/preferences"), button=("times", "local"), zone="Asia/Kathmandu")
    assert {one.text.rpartition(" ")[2] for one in _times(shown)} == {"+0545"}
    for theme, times, zone in (
        ("pink", "never", ""),
        ("", "local", "../../etc/passwd"),
        ("", "local", "No/Where"),
    ):
        answer = await guest.client.post(
            "/preferences", data={"_token": _token(shown), "theme": theme, "times": times, "zone": zone}
        )
        assert answer.status_code == 303
        assert (await guest.open("/tasks")).title == "Tasks"


def _times(shown: Document) -> list[Element]:
    return [one for one in shown.root.all("time") if one.inside("table")]


@pytest.mark.parametrize("said", ["", "local", "local:", "local:..~..~etc", f"local:{'A' * 500}", "never:x"])
async def test_a_cookie_that_makes_no_sense_changes_nothing(guest: Browser, said: str) -> None:
    guest.client.cookies.update({TIMES: said, THEME: "<script>"})
    assert (await guest.open("/")).root.all("html")[0]["data-theme"] == "auto"


# ---------------------------------------------------------------- the secret


@pytest.mark.parametrize("secret", ["short", "x" * 31, "x" * 201, "http://user:" + "x" * 40, "x" * 40 + "\n"])
def test_a_secret_that_is_none_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(session_secret=secret)
    assert secret not in str(refused.value)
    assert "session_secret" in str(refused.value)


async def test_processes_that_share_a_secret_share_sessions(hall: Hall) -> None:
    key = await hall.door.key("read")
    async with hall.visitor() as visitor:
        await visitor.post("/login", data={"key": key})
        cookie = visitor.cookies[COOKIE]
    for secret, status in ((SECRET, 200), (None, 303)):
        other = httpx2.ASGITransport(app=make_site(hall.context, secret=secret), client=HERE)
        async with httpx2.AsyncClient(transport=other, base_url="http://localhost") as visitor:
            visitor.cookies.set(COOKIE, cookie)
            assert (await visitor.get("/")).status_code == status
