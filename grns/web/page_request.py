"""The request that a page handles: its user, its form, calls to the API, and the rendered response."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from grns.access.principals import Scope
from grns.api.context import ApiContext
from grns.api.in_process import ApiClient, ApiProblemError, ApiResponse
from grns.dead_letters import listing
from grns.errors import GrnsError, InvalidInputError, NotFoundError, PermissionDeniedError
from grns.model import problem
from grns.model.problem import Problem
from grns.postgres.database import Database
from grns.web.authentication import Authenticator, CurrentUser
from grns.web.charts import AttemptDurationsCache
from grns.web.form import Form
from grns.web.formatting import DisplayPreferences, Exact
from grns.web.templating import render

# Parameters of one request only: links to the same page drop them.
_TRANSIENT = frozenset({"notice", "shown"})
# Statuses that a user can do something about: correct the form, load the page again, or wait.
_CORRECTABLE = frozenset({400, 409, 412, 413, 429, 503})
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
# No URL of another site looks like this, however a browser reads it.
_LOCAL_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2000}")
_CLOCK_SECONDS = 10.0

# Shown on top of a page after an action; the URL has only the name.
NOTICES = {
    "cancelled": "The task was cancelled.",
    "requested": "The running task was asked to stop. It may still succeed.",
    "redriven": "The task was queued again and its attempts were reset.",
    "discarded": "Discarded: lists no longer show it.",
    "edited": "The task was changed.",
    "unchanged": "Nothing was changed: the task was in this status already, or has ended.",
    "issue": "The issue was changed.",
    "paused": "Paused: no further tasks are claimed. Running tasks continue.",
    "resumed": "Resumed.",
    "workflow_paused": "Paused: no task that waits for others is queued. Other tasks continue.",
    "run_submitted": "The task was submitted.",
    "run_skipped": "Nothing was submitted: the task before has not ended.",
    "schedule_paused": "Paused: what is due until it is resumed is not submitted.",
    "sent": "The message is in the agent's mailbox.",
    "told": "The agent learns of it with its next heartbeat, renewal or claim.",
    "limit_paused": "Paused: no task that waits for room is queued. Queued and running tasks continue.",
    "allowed": "Allowed: pools that the budget has paused resume within two seconds, if it is enough.",
    "operation_cancelled": "The operation is cancelled. Moved tasks stay moved.",
    "operation": "The operation was started.",
    "resent": "The message was sent again.",
    "saved": "The view was saved.",
    "forgotten": "The view was deleted.",
    "revoked": "The key was revoked.",
    "workspace": "The workspace was created.",
    "webhook": "The webhook was changed.",
    "deleted": "The webhook was deleted.",
    "pinged": "A test event is being sent. This page shows the result.",
    "answered": "The answer was recorded: the task runs again.",
    "delivery": "The event is being sent again.",
}


@dataclass(frozen=True, slots=True)
class NavigationItem:
    """A link of the main menu, for users with the scope; `everywhere`: for users of all workspaces only."""

    title: str
    path: str
    scope: Scope = "read"
    everywhere: bool = False

    def is_current(self, path: str) -> bool:
        """Check whether a page is this one, or below it."""
        return path == self.path or (self.path != "/" and path.startswith(f"{self.path}/"))


NAVIGATION = (
    NavigationItem("Overview", "/"),
    NavigationItem("Issues", "/issues"),
    NavigationItem("Tasks", "/tasks"),
    NavigationItem("Workflows", "/workflows"),
    NavigationItem("Questions", "/questions"),
    NavigationItem("Schedules", "/schedules"),
    NavigationItem("Limits", "/limits"),
    NavigationItem("Operations", "/operations"),
    NavigationItem("Pools", "/pools"),
    NavigationItem("Workers", "/workers"),
    NavigationItem("Agents", "/agents"),
    NavigationItem("Usage", "/usage"),
    NavigationItem("Events", "/events"),
    NavigationItem("Messages", "/messages"),
    NavigationItem("Webhooks", "/webhooks"),
    NavigationItem("Keys", "/keys", "admin"),
    NavigationItem("Workspaces", "/workspaces"),
    NavigationItem("Installation", "/installation", everywhere=True),
)


@dataclass(slots=True)
class DisplayClock:
    """The database's time, which dates all rows, read every 10 seconds: relative times need no better."""

    database: Database
    _read_at: float = 0.0
    _time: datetime | None = None

    async def now(self) -> datetime:
        """Return the time."""
        passed = time.monotonic() - self._read_at
        if self._time is not None and passed < _CLOCK_SECONDS:
            return self._time + timedelta(seconds=passed)
        try:
            self._time = await listing.now(self.database)
        except GrnsError:  # the page that shows this error has the local time
            return datetime.now(UTC)
        self._read_at = time.monotonic()
        return self._time


@dataclass(frozen=True, slots=True)
class WebContext:
    """The objects that the pages of a process share."""

    api_context: ApiContext
    api: ApiClient
    authenticator: Authenticator
    clock: DisplayClock
    durations: AttemptDurationsCache = field(default_factory=AttemptDurationsCache)


class PageRequest(Request):
    """A request for a page.

    `fields` is the posted form; `form_error` is set if a page shows its form again. `current_user` is None on
    public pages only.
    """

    def __init__(self, request: Request) -> None:
        super().__init__(request.scope, request.receive)
        self.context: WebContext = request.app.state.web
        self.current_user: CurrentUser | None = None
        self.fields = Form()
        self.form_error: Problem | None = None
        self.path = request.url.path

    @property
    def user(self) -> CurrentUser:
        """The user, on pages that are not public."""
        assert self.current_user is not None, "the page is public"  # noqa: S101
        return self.current_user

    @property
    def is_refresh(self) -> bool:
        """True if a page refreshes itself: large parts that do not change can be left out."""
        return self.headers.get("hx-request") == "true"

    @property
    def named_workspace(self) -> str | None:
        """The workspace in the URL, if any."""
        return self.query("workspace")

    @property
    def workspace(self) -> str:
        """The workspace that the page shows."""
        return self.named_workspace or self.user.principal.workspace or self.context.api_context.workspace

    @property
    def previous_page(self) -> Exact | None:
        """The page with the link that led here, unless it is on another site or is this page."""
        path = local_referer(self.headers.get("referer"), self.headers.get("host", ""))
        return None if path is None or path == self.url.path else Exact(path)

    def query(self, name: str) -> str | None:
        """Return a parameter of the URL, or None if it is missing or empty."""
        return self.query_params.get(name) or None

    def name(self, parameter: str) -> str:
        """Return a part of the path that is a name.

        Raises:
            NotFoundError: no name looks like this.
        """
        text: str = self.path_params[parameter]
        if not _NAME.fullmatch(text):
            raise NotFoundError("there is no such page")
        return text

    def keep_form(self, error: InvalidInputError | ApiProblemError, path: str) -> None:
        """Have the page at `path` show its form again with the error.

        Raises:
            InvalidInputError, ApiProblemError: the same error, if the user cannot correct it.
        """
        found = error.problem if isinstance(error, ApiProblemError) else problem.of(error)
        if found.status not in _CORRECTABLE:
            raise error
        self.form_error, self.path = found, path

    def form_value(self, name: str, default: str = "") -> Exact:
        """Return the value of a field: the posted one if the form is shown again."""
        return Exact(default if self.form_error is None else self.fields.text(name) or "")

    def may(self, scope: Scope) -> bool:
        """Check whether the user has a scope in this workspace."""
        return self.current_user is not None and self.current_user.principal.may(scope, self.workspace)

    def require(self, scope: Scope) -> None:
        """Raise PermissionDeniedError if the user lacks a scope."""
        if not self.may(scope):
            raise PermissionDeniedError(f"the scope {scope} is needed")

    async def fetch(self, path: str, **query: Any) -> Any:
        """Return the content of a GET request to the API.

        Raises:
            ApiProblemError: the API answered with a problem.
        """
        return (await self.fetch_response(path, **query)).content

    async def fetch_response(self, path: str, **query: Any) -> ApiResponse:
        """Return the response of a GET request to the API, with its ETag."""
        return await self.context.api.call(self.user.principal, "GET", path, query=self.in_workspace(query))

    async def change(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        method: str = "POST",
        etag: str | None = None,
    ) -> Any:
        """Return the content of a changing request to the API; with an ETag, change only that version."""
        response = await self.context.api.call(
            self.user.principal,
            method,
            path,
            query=self.in_workspace({}),
            body=body,
            headers=None if etag is None else {"if-match": etag},
        )
        return response.content

    def in_workspace(self, query: Mapping[str, Any]) -> dict[str, Any]:
        """Return a query with the workspace of the URL, if it has one."""
        return {"workspace": self.named_workspace, **query}

    def link(self, path: str, **query: Any) -> Exact:
        """Return the URL of a page in the same workspace."""
        return page_url(path, **self.in_workspace(query))

    def this_page(self, **changed: str | None) -> Exact:
        """Return the URL of this page with parameters changed; None removes one."""
        items = [
            (key, value)
            for key, value in self.query_params.multi_items()
            if key not in _TRANSIENT and key not in changed
        ]
        items += [(key, value) for key, value in changed.items() if value]
        return Exact(quote(self.path) + (f"?{urlencode(items)}" if items else ""))

    def redirect(self, path: str, **query: Any) -> Response:
        """Return a redirect to a page, after a form was handled."""
        return RedirectResponse(self.link(path, **query), status_code=303)

    async def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Return a rendered page."""
        if self.form_error is not None:
            status = self.form_error.status
        path, user = self.path, self.current_user
        common = {
            "request": self,
            "link": self.link,
            "may": self.may,
            "user": user,
            "csrf_token": "" if user is None else user.csrf_token,
            "workspace": "" if user is None else self.workspace,
            "path": path,
            "here": path + (f"?{self.url.query}" if self.url.query else ""),
            "preferences": DisplayPreferences.of(self),
            "now": await self.context.clock.now(),
            "navigation": [item for item in NAVIGATION if self._may_open(item)],
            "notice": NOTICES.get(self.query("notice") or ""),
        }
        return HTMLResponse(render(template, {**common, **values}), status_code=status)

    def _may_open(self, item: NavigationItem) -> bool:
        return self.may(item.scope) and (not item.everywhere or self.user.principal.workspace is None)


Handler = Callable[[PageRequest], Awaitable[Response]]
_Handler = TypeVar("_Handler", bound=Handler)


@dataclass(frozen=True, slots=True)
class WebPage:
    """A page, or the action of a form. Public ones need no log-in."""

    method: str
    path: str
    handler: Handler
    is_public: bool
    takes_text: bool = False  # a public page whose form may be long

    @property
    def name(self) -> str:
        """The operation in metrics."""
        return f"web_{self.handler.__name__}"


class WebPages(list[WebPage]):
    """The pages of one module."""

    def get(self, path: str, *, is_public: bool = False) -> Callable[[_Handler], _Handler]:
        """Add a page."""
        return self._add("GET", path, is_public)

    def post(
        self, path: str, *, is_public: bool = False, takes_text: bool = False
    ) -> Callable[[_Handler], _Handler]:
        """Add the action of a form."""
        return self._add("POST", path, is_public, takes_text)

    def _add(
        self, method: str, path: str, is_public: bool, takes_text: bool = False
    ) -> Callable[[_Handler], _Handler]:
        def add(handler: _Handler) -> _Handler:
            self.append(WebPage(method, path, handler, is_public, takes_text))
            return handler

        return add


def page_url(path: str, **query: Any) -> Exact:
    """Return the URL of a page."""
    items = {name: value for name, value in query.items() if value not in (None, "", [])}
    return Exact(quote(path) + (f"?{urlencode(items, doseq=True)}" if items else ""))


def local_path(url: str | None) -> str | None:
    """Return a URL if it certainly leads to a page of this site, else None."""
    return url if url is not None and _LOCAL_PATH.fullmatch(url) else None


def local_referer(referer: str | None, host: str) -> str | None:
    """Return the path and query of a referer on this host, else None."""
    try:
        url = urlsplit(referer or "")
    except ValueError:
        return None
    if not url.netloc or url.netloc != host:
        return None
    return local_path(url.path + (f"?{url.query}" if url.query else ""))
