"""The site: the API under its paths, the dashboard everywhere else; log-in, errors and headers of pages."""

from __future__ import annotations

import secrets
import time
import traceback
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import cast

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from grns.api.app import ROUTES, bare, make_api
from grns.api.context import ApiContext
from grns.api.in_process import ApiClient, ApiProblemError
from grns.api.mcp.lazy import MCP_PATH, LazyMcp
from grns.api.route import OPERATION, PREFIX
from grns.errors import GrnsError, NotFoundError, UnavailableError
from grns.model import problem
from grns.model.problem import Problem
from grns.telemetry.service_signals import RequestAnswered, RequestCrashed, RequestFailed
from grns.telemetry.signal import Emit
from grns.web import (
    agent,
    event,
    issue,
    key,
    limit,
    login,
    message,
    operation,
    overview,
    pool,
    question,
    schedule,
    system,
    task,
    task_list,
    usage,
    webhook,
    workflow,
)
from grns.web.authentication import Authenticator, Sessions, check_csrf, is_same_site
from grns.web.form import read_form
from grns.web.page_request import DisplayClock, Handler, PageRequest, WebContext, WebPage, page_url
from grns.web.templating import STATIC, STATIC_PATH, Assets

# The first match wins: /tasks/completions is before /tasks/{task_id}.
PAGES: tuple[WebPage, ...] = tuple(
    page
    for module in (
        overview, issue, operation, workflow, question, schedule, limit, task_list, task, pool, agent, usage,
        event, message, webhook, key, system, login,
    )
    for page in module.pages
)  # fmt: skip

# A browser sends no SameSite=Strict cookie with a link from another site. A reload of this page sends it.
_RELOAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0">'
    "<title>grns</title></head><body><p>One moment …</p></body></html>"
)
_CSRF_FIELD = "_token"
# Nothing from other sites, nothing inline, no frames.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_PROBES = frozenset(route.path for route in ROUTES if not route.path.startswith(PREFIX))


def make_site(context: ApiContext, *, secret: str | None = None) -> ASGIApp:
    """Return the app with the API and the dashboard.

    Args:
        secret: Signs sessions. Without it, sessions end with this process.
    """
    api, web = make_api(context), make_web(context, secret=secret)
    mcp = LazyMcp(api, context.stopping)

    async def site(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == MCP_PATH:
            await mcp(scope, receive, send)
            return
        is_api = path in _PROBES or path == "/api" or path.startswith("/api/")
        await (api if is_api else web)(scope, receive, send)

    return site


def make_web(context: ApiContext, *, secret: str | None = None) -> Starlette:
    """Return the app with the dashboard."""
    # A second API without middleware: calls from pages are not counted as requests.
    api = bare()
    api.state.context = context
    web = Starlette(
        routes=[
            Mount(STATIC_PATH, Assets(directory=STATIC)),
            *(Route(page.path, _endpoint(page), methods=[page.method]) for page in PAGES),
        ],
        middleware=[Middleware(PageMiddleware, emit=context.emit)],
        exception_handlers={HTTPException: _no_route},
    )
    web.router.redirect_slashes = False
    web.state.web = WebContext(
        context, ApiClient(api), Authenticator(context, Sessions(secret)), DisplayClock(context.database)
    )
    return web


def _endpoint(page: WebPage) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        request.scope[OPERATION] = page.name
        return await _respond(request, page.handler, is_public=page.is_public, takes_text=page.takes_text)

    return endpoint


async def _no_route(request: Request, error: Exception) -> Response:
    is_missing = cast(HTTPException, error).status_code == HTTPStatus.NOT_FOUND
    return await _respond(request, _not_found if is_missing else _bad_method)


async def _not_found(_request: PageRequest) -> Response:
    raise NotFoundError("there is no such page")


async def _bad_method(request: PageRequest) -> Response:
    detail = "this address takes a form only: go back to its page"
    return await _error_page(request, Problem("about:blank", "Method Not Allowed", 405, "form_only", detail))


async def _respond(
    request: Request, handler: Handler, *, is_public: bool = False, takes_text: bool = False
) -> Response:
    """Authenticate the user, check the form, run the page, and turn errors into pages."""
    page = PageRequest(request)
    try:
        return await _run(page, handler, is_public=is_public, takes_text=takes_text)
    except ApiProblemError as error:
        return await _error_page(page, error.problem)
    except GrnsError as error:
        if isinstance(error, UnavailableError):
            page.context.api_context.emit(RequestFailed(_operation(page.scope), str(error)))
        return await _error_page(page, problem.of(error))


async def _run(
    request: PageRequest, handler: Handler, *, is_public: bool, takes_text: bool = False
) -> Response:
    request.current_user = user = await request.context.authenticator.current_user(request)
    if user is None and not is_public:
        return _log_in_first(request)
    if request.method == "POST":
        request.fields = await read_form(request, is_public=is_public, takes_text=takes_text)
        # The log-in form belongs to no session.
        if user is not None and not is_public:
            check_csrf(request, user, request.fields.text(_CSRF_FIELD) or "")
    if user is not None and not user.principal.reaches(request.workspace):
        raise NotFoundError(f"there is no workspace {request.workspace}")
    return await handler(request)


def _log_in_first(request: PageRequest) -> Response:
    """Return a redirect to the log-in page, which leads back."""
    if request.is_refresh:
        return Response(status_code=401, headers={"HX-Refresh": "true"})
    if request.method != "GET":
        return RedirectResponse("/login", status_code=303)
    if not is_same_site(request):
        return HTMLResponse(_RELOAD)
    path, query = request.url.path, request.url.query
    back = path + (f"?{query}" if query else "")
    return RedirectResponse(page_url("/login", next=None if back == "/" else back), status_code=303)


async def _error_page(request: PageRequest, found: Problem, *, trace_id: str | None = None) -> Response:
    request.form_error = None  # the page has no form
    return await request.render("problem.html", status=found.status, problem=found, trace_id=trace_id)


class PageMiddleware:
    """Adds security headers, counts requests, and shows an error page if a bug ends a request."""

    def __init__(self, app: ASGIApp, *, emit: Emit) -> None:
        self._app = app
        self._emit = emit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        started_at, status = time.monotonic(), 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            await self._app(scope, receive, send_guarded)
        except Exception:
            trace_id = secrets.token_hex(16)
            self._emit(RequestCrashed(_operation(scope), trace_id, traceback.format_exc()))
            if status:
                raise  # the response has begun: an aborted connection shows that it is not complete
            page = PageRequest(Request(scope, receive))
            response = await _error_page(page, problem.of(RuntimeError()), trace_id=trace_id)
            await response(scope, receive, send_guarded)
        finally:
            seconds = time.monotonic() - started_at
            self._emit(RequestAnswered(_operation(scope), scope["method"], status, seconds))


def _operation(scope: Scope) -> str:
    is_static = scope["path"].startswith(f"{STATIC_PATH}/")
    operation: str = scope.get(OPERATION, "web_static" if is_static else "web_none")
    return operation
