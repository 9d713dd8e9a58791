"""What the tests of the dashboard share: the site on a real database, a browser without scripts, some data.

No tests live here; pytest writes the asserts of such files anew.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2
import pytest

from grns.api.context import ApiContext
from grns.dead_letters.store import RejectedMessage, store_rejected
from grns.model.filter import parse
from grns.model.json import Limits
from grns.model.outcome import Verb
from grns.model.url_policy import UrlPolicy
from grns.operations.model import request
from grns.operations.service import create_operation
from grns.postgres.database import Database
from grns.schedules.model import schedule_spec
from grns.schedules.service import put
from grns.tasks import pauses as pause
from grns.tasks import saved_filters as saved_filter
from grns.tasks.budgets import Budgets
from grns.telemetry.service_signals import RequestCrashed
from grns.web.app import POLICY, make_site
from grns.web.authentication import COOKIE
from grns.webhooks.service import create_webhook, ping_webhook
from grns.worker import registry as agent
from tests.support.admitters import put_limit
from tests.support.aggregators import begin_here, count_all
from tests.support.api import HERE, Door
from tests.support.harness import submit
from tests.support.store import ACTOR, WORKER, claim, fetch, finish, place

SECRET = "s" * 40
_VOID = frozenset({"meta", "link", "input", "img", "br", "hr", "path", "rect"})
_NONE: Mapping[str, str] = {}
_FIELDS = frozenset({"input", "select", "textarea"})


@dataclass
class Element:
    """One element of a page: its name, its attributes, the text inside, and what it stands in."""

    tag: str
    attributes: dict[str, str]
    parent: Element | None
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it, in order of depth."""
        return "".join(self.texts) + "".join(child.text for child in self.children)

    def all(self, *tags: str) -> list[Element]:
        """Return the elements in it of some names, or all."""
        found = []
        for child in self.children:
            if not tags or child.tag in tags:
                found.append(child)
            found += child.all(*tags)
        return found

    def inside(self, tag: str) -> Element | None:
        """Return the nearest element of a name that it stands in."""
        above = self.parent
        while above is not None and above.tag != tag:
            above = above.parent
        return above

    def __getitem__(self, name: str) -> str:
        return self.attributes[name]

    def get(self, name: str) -> str | None:
        """Return an attribute, None where it is not there."""
        return self.attributes.get(name)


class Document(HTMLParser):
    """A page as a browser without scripts has it."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self._open = Element("", {}, None)
        self.feed(text)
        self.close()
        assert self._open is self.root, f"{self._open.tag} is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} has an attribute twice"
        made = Element(tag, {name: value or "" for name, value in attrs}, self._open)
        self._open.children.append(made)
        if tag not in _VOID:
            self._open = made

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open and close an element."""
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close an element: the one that is open."""
        if tag in _VOID:
            return
        assert self._open.tag == tag, f"</{tag}> ends <{self._open.tag}>"
        assert self._open.parent is not None
        self._open = self._open.parent

    def handle_data(self, data: str) -> None:
        """Keep text."""
        self._open.texts.append(data)

    @property
    def title(self) -> str:
        """What stands at its top."""
        return self.root.all("h1")[0].text.strip()

    @property
    def links(self) -> list[str]:
        """Where its links lead to, on this site."""
        hrefs = [link["href"] for link in self.root.all("a") if link.get("href")]
        return [href for href in hrefs if not href.startswith("#")]

    @property
    def forms(self) -> list[Element]:
        """Its forms."""
        return self.root.all("form")

    def form(self, action: str) -> Element:
        """Return the form that leads there: one of the page itself before one that is on all pages."""
        found = [form for form in self.forms if urlsplit(form["action"]).path == action]
        assert found, f"no form leads to {action}: {[form['action'] for form in self.forms]}"
        return next((form for form in found if form.inside("main")), found[0])

    def form_with(self, name: str) -> Element:
        """Return the only form that has such a field."""
        (found,) = [form for form in self.forms if name in [one.get("name") for one in form.all("input")]]
        return found


def fields(form: Element) -> list[tuple[str, str]]:
    """Return what a form sends as it stands there; of buttons none."""
    found = []
    for one in form.all(*_FIELDS):
        name, kind = one.get("name"), one.get("type")
        if name is None or (kind in ("checkbox", "radio") and one.get("checked") is None):
            continue
        if one.tag == "select":
            options = one.all("option")
            value = options[0].attributes.get("value", options[0].text) if options else ""
        else:
            value = one.text.removeprefix("\n") if one.tag == "textarea" else one.attributes.get("value", "")
        found.append((name, value))
    return found


class Browser:
    """Somebody with a browser that runs no scripts: forms are sent as they stand there."""

    def __init__(self, client: httpx2.AsyncClient, hall: Hall) -> None:
        self.client = client
        self.hall = hall

    async def open(self, path: str, status: int = 200) -> Document:
        """Open a page."""
        return self._page(await self.client.get(path, follow_redirects=True), status)

    async def send(
        self,
        at: str,
        action: str,
        *,
        status: int = 200,
        button: tuple[str, str] | None = None,
        more: Mapping[str, str] = _NONE,
        **said: str,
    ) -> Document:
        """Send the form of a page that leads to `action`, with some fields changed."""
        form = (await self.open(at)).form(action)
        return await self.submit(form, status=status, button=button, more={**more, **said})

    async def submit(
        self,
        form: Element,
        *,
        status: int = 200,
        button: tuple[str, str] | None = None,
        to: str | None = None,
        without: str | None = None,
        more: Mapping[str, str] = _NONE,
        **said: str,
    ) -> Document:
        """Send a form, with some fields changed, by one of its buttons; `without` a box that was ticked."""
        changed = {**more, **said}
        sent = [(name, value) for name, value in fields(form) if name not in changed and name != without]
        sent += [*changed.items(), *([button] if button else [])]
        if form.attributes.get("method", "get") == "get":
            answer = await self.client.get(to or form["action"], params=_joined(sent), follow_redirects=True)
        else:
            answer = await self.client.post(to or form["action"], data=_joined(sent), follow_redirects=True)
        return self._page(answer, status)

    def _page(self, answer: httpx2.Response, status: int) -> Document:
        broken = [] if status == 500 else self.hall.door.emitted.of(RequestCrashed)
        assert not broken, broken[0].exception
        return page(answer, status)


def _joined(sent: list[tuple[str, str]]) -> dict[str, Any]:
    found: dict[str, list[str]] = {}
    for name, value in sent:
        found.setdefault(name, []).append(value)
    return found


def page(answer: httpx2.Response, status: int = 200) -> Document:
    """Return the page of an answer, with all that no page goes without."""
    assert answer.status_code == status, answer.text[:3000]
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    headers = answer.headers
    assert headers.get_list("content-security-policy") == [POLICY]
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    found = Document(answer.text)
    for one in found.root.all():
        assert not [name for name in one.attributes if name.startswith("on") or name == "style"], one
        assert one.tag != "style"
        assert one.tag != "script" or (one["src"].startswith("/static/") and not one.text.strip())
    return found


class Hall:
    """The site, and who comes in there with a browser."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.database = door.database
        self.context: ApiContext = door.context
        self.site = make_site(door.context, secret=SECRET)

    def visitor(self, *, address: tuple[str, int] = HERE, **headers: str) -> httpx2.AsyncClient:
        """Return somebody who asks."""
        return httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=self.site, client=address),
            base_url="http://localhost",
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )

    async def logged_in(self, *scopes: str, **of: Any) -> Browser:
        """Return somebody who has logged in with a new key."""
        visitor = self.visitor()
        answer = await visitor.post("/login", data={"key": await self.door.key(*scopes, **of)})
        assert (answer.status_code, answer.headers["location"]) == (303, "/"), answer.text
        assert COOKIE in visitor.cookies
        return Browser(visitor, self)


@pytest.fixture
async def hall(door: Door) -> Hall:
    """The site on the shared database, without any key."""
    return Hall(door)


@pytest.fixture
async def guest(hall: Hall) -> AsyncIterator[Browser]:
    """Somebody who may do everything, in all workspaces."""
    browser = await hall.logged_in("admin", workspace=None)
    yield browser
    await browser.client.aclose()


@dataclass(frozen=True)
class Furnished:
    """What there is in a workspace that has something of everything."""

    queued: str
    running: str
    dead: str
    succeeded: str
    message: str
    operation: int
    fingerprint: str
    webhook: str
    seq: int
    workflow: str
    schedule: str
    limit: str

    @property
    def places(self) -> list[str]:
        """Where the pages of these are."""
        return [
            *(f"/tasks/{one}" for one in (self.queued, self.running, self.dead, self.succeeded)),
            f"/tasks/{self.dead}/edit", f"/messages/{self.message}", f"/operations/{self.operation}",
            f"/issues/{self.fingerprint}", "/pools/worker", f"/webhooks/{self.webhook}",
            f"/webhooks/{self.webhook}/deliveries/{self.seq}", f"/workflows/{self.workflow}",
            f"/schedules/{self.schedule}", f"/limits/{self.limit}",
        ]  # fmt: skip


async def furnish(database: Database) -> Furnished:
    """Let there be something of everything in the default workspace, and the log be counted."""
    await begin_here(database)
    dead, succeeded = await place(database, "dead"), await place(database, "succeeded")
    running, queued = await place(database, "running"), (await submit(database, payload={"n": 1})).id
    retried = await claim(database, (await submit(database)).id)
    await finish(database, retried, Verb.RETRY)
    await store_rejected(
        database,
        [
            RejectedMessage(
                "bad_json",
                "it ends early",
                "cmd.task.execute.v1",
                "GRNS_CMD",
                7,
                2,
                {"A": "b"},
                b'{"n": 1',
            )
        ],
    )
    (letter,) = await fetch(database, "select id from grns.dead_letters")
    await agent.register(database, WORKER, concurrency=5, version="1")
    await pause.begin(
        database,
        workspace="default",
        agent_type="digest",
        task_type=None,
        actor=ACTOR,
        reason="mending",
        until=None,
    )
    await saved_filter.save(
        database, workspace="default", name="gone", wanted=parse("status:dead"), actor=ACTOR
    )
    made = await create_operation(
        database, request(action="redrive", filter="type:none"), workspace="default", actor=ACTOR
    )
    _, webhook = await create_webhook(
        database,
        workspace="default",
        url="https://example.org/secret",
        kinds=["evt.task.*"],
        guard=UrlPolicy(),
        actor=ACTOR,
    )
    seq = await ping_webhook(database, webhook.id, workspace="default", actor=ACTOR)
    graph = [
        *({"name": f"page {n}", "task_type": "fetch", "needs": []} for n in range(4)),
        {"name": "report", "task_type": "write", "needs": [{"task": f"page {n}"} for n in range(4)]},
    ]
    await fetch(
        database, 'select grns.submit_graph($1, workflow => \'{"name": "report"}\')', json.dumps(graph)
    )
    ((workflow,),) = await fetch(database, "select id from grns.workflows where workspace = 'default'")
    spec = schedule_spec(name="daily", task_type="fetch", agent_type="worker", cron="0 9 * * *")
    await put(database, spec, workspace="default", actor=ACTOR, limits=Limits())
    await Budgets(database, "default", ACTOR).put("writing", pool="worker", max_cost=10, max_tokens=1000)
    await put_limit(database, "tenant", task_types=["import_file"], key="tenant", max_tasks=1)
    for tenant in ("a", "a", "b"):
        await submit(database, "import_file", payload={"tenant": tenant})
    await count_all(database)
    (issue,) = await fetch(database, "select fingerprint from grns.issues where workspace = 'default'")
    return Furnished(
        queued,
        running.id,
        dead.id,
        succeeded.id,
        str(letter["id"]),
        made.id,
        issue["fingerprint"],
        webhook.id,
        seq,
        workflow,
        spec.name,
        "tenant",
    )


def resolved(at: str, link: str) -> str:
    """Return where a link on a page leads."""
    return urljoin(at, link)
