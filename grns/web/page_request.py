"""One visit of a page: who asks, what the API says to them, and the page that shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from grns.access.principals import Scope
from grns.api.context import ApiContext
from grns.errors import InvalidInputError, NotFoundError, PermissionDeniedError
from grns.model import problem
from grns.model.problem import Problem
from grns.web import preferences as look
from grns.web import render
from grns.web.address import before
from grns.web.api_client import Answered, ApiRefusal, Inside, Query
from grns.web.authenticator import Authenticator, CurrentUser
from grns.web.clock import DisplayClock
from grns.web.form import Form
from grns.web.formatting import Exact
from grns.web.navigation import NAVIGATION
from grns.web.navigation import NavigationItem as Link
from grns.web.notice import NOTICES
from grns.web.pace import Paces

WORKSPACE = "workspace"
# What an address says only once.
_PASSING = frozenset({"said", "shown"})
# What somebody can do something about who has the form before them: write otherwise, look again, wait.
_MENDABLE = frozenset({400, 409, 412, 413, 429, 503})
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class WebContext:
    """What the pages of a process share."""

    context: ApiContext
    inside: Inside
    entry: Authenticator
    clock: DisplayClock
    paces: Paces


@dataclass
class PageRequest:
    """One visit. `form` is what was sent with it, of a form; `who` is None only on pages that are open.

    `trouble` is what is wrong with the form, where its page is shown again.
    """

    room: WebContext
    request: Request
    who: CurrentUser | None
    form: Form = field(default_factory=lambda: Form(()))
    trouble: Problem | None = None
    _at: str | None = None

    @property
    def user(self) -> CurrentUser:
        """Who was let in."""
        assert self.who is not None, "the page is open"  # noqa: S101
        return self.who

    @property
    def is_pulse(self) -> bool:
        """Say whether a page asks for itself again: what is large, and stays as it was, can be left out."""
        return self.request.headers.get("hx-request") == "true"

    @property
    def workspace(self) -> str | None:
        """The workspace that the address names."""
        return self.query(WORKSPACE)

    @property
    def place(self) -> str:
        """The workspace that all is about."""
        return self.workspace or self.user.principal.workspace or self.room.context.workspace

    @property
    def path(self) -> str:
        """Where the page is that is shown."""
        return self._at or self.request.url.path

    @property
    def back(self) -> Exact | None:
        """The page of ours that has led here, None where it was none, or this one."""
        found = before(self.request.headers.get("referer"), self.request.headers.get("host", ""))
        return None if found is None or found == self.request.url.path else Exact(found)

    def mend(self, error: InvalidInputError | ApiRefusal, path: str) -> None:
        """Have the page at `path` shown again, with what was written; raise what no writing mends."""
        said = error.problem if isinstance(error, ApiRefusal) else problem.of(error)
        if said.status not in _MENDABLE:
            raise error
        self.trouble, self._at = said, path

    def written(self, name: str, otherwise: str = "") -> Exact:
        """Return what is to stand in a field: what was written there, where its form is shown again."""
        return Exact(otherwise if self.trouble is None else self.form.text(name) or "")

    def query(self, name: str) -> str | None:
        """Return a part of the address, None where it is not there, or empty."""
        return self.request.query_params.get(name) or None

    def queries(self, name: str) -> list[str]:
        """Return all parts of the address of one name."""
        return self.request.query_params.getlist(name)

    def may(self, scope: Scope) -> bool:
        """Say whether whoever asks may do what takes this scope."""
        return self.who is not None and self.who.principal.may(scope, self.place)

    def need(self, scope: Scope) -> None:
        """Refuse, with `PermissionDeniedError`, whoever may not do what takes this scope, whatever they have
        written."""
        if not self.may(scope):
            raise PermissionDeniedError(f"the scope {scope} is needed")

    async def ask(self, path: str, **query: Any) -> Any:
        """Return what the API answers; `ApiRefusal` where it is a problem."""
        return (await self.answer(path, **query)).content

    async def answer(self, path: str, **query: Any) -> Answered:
        """Return the same, with its edition."""
        return await self.room.inside.ask(self.user.principal, "GET", path, query=self.named(query))

    async def act(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        method: str = "POST",
        edition: str | None = None,
        query: Query | None = None,
    ) -> Any:
        """Have the API do something, and return what it answers; with an edition, only as that was seen."""
        headers = None if edition is None else {"if-match": edition}
        answered = await self.room.inside.ask(
            self.user.principal, method, path, query=self.named(query or {}), body=body, headers=headers
        )
        return answered.content

    def named(self, query: Query) -> dict[str, Any]:
        """Return a question in which the workspace is named, where the address names one."""
        return {WORKSPACE: self.workspace, **query}

    def link(self, path: str, **query: Any) -> Exact:
        """Return the address of a page of ours, in the same workspace."""
        return self.link_of(path, **self.named(query))

    @staticmethod
    def link_of(path: str, **query: Any) -> Exact:
        """Return the address of a page of ours."""
        said = {name: value for name, value in query.items() if value not in (None, "", [])}
        return Exact(quote(path) + (f"?{urlencode(said, doseq=True)}" if said else ""))

    def again(self, **changed: str | None) -> Exact:
        """Return the address of this page, with something in it changed; None takes it out."""
        kept = [(key, value) for key, value in self.request.query_params.multi_items() if key not in _PASSING]
        said = [(key, value) for key, value in kept if key not in changed]
        said += [(key, value) for key, value in changed.items() if value]
        return Exact(quote(self.path) + (f"?{urlencode(said)}" if said else ""))

    def go(self, path: str, **query: Any) -> Response:
        """Lead on to another page, once something was done."""
        return RedirectResponse(self.link(path, **query), status_code=303)

    async def show(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Return a page."""
        if self.trouble is not None:
            status = self.trouble.status
        return HTMLResponse(render.render(template, {**await self._common(), **values}), status_code=status)

    def _may_enter(self, entry: Link) -> bool:
        return self.may(entry.scope) and (not entry.is_of_all or self.user.principal.workspace is None)

    async def _common(self) -> dict[str, Any]:
        path = self.path
        return {
            "call": self,
            "link": self.link,
            "may": self.may,
            "who": self.who,
            "token": "" if self.who is None else self.who.token,
            "place": "" if self.who is None else self.place,
            "path": path,
            "here": path + (f"?{self.request.url.query}" if self.request.url.query else ""),
            "look": look.read(self.request),
            "now": await self.room.clock.now(),
            "navigation": [one for one in NAVIGATION if self._may_enter(one)],
            "notice": NOTICES.get(self.query("said") or ""),
            "is_pulse": self.is_pulse,
        }


def name(text: str) -> str:
    """Return a part of an address that is to be a name; `NotFoundError` where nothing can have such a one."""
    if not _TOKEN.fullmatch(text):
        raise NotFoundError("there is no such page")
    return text
