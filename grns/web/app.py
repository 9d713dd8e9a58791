"""The pages as one ASGI app: who is let in, and what becomes of errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from grns.api.route import OPERATION
from grns.errors import GrnsError, NotFoundError, UnavailableError
from grns.model import problem
from grns.model.problem import Problem
from grns.telemetry.service_signals import RequestFailed
from grns.web import (
    edit,
    event,
    help,
    installation,
    issue,
    key,
    login,
    message,
    operation,
    overview,
    pool,
    static,
    task,
    task_list,
    view,
    webhook,
    worker,
    workspace,
)
from grns.web.api_client import ApiRefusal
from grns.web.authenticator import is_ours
from grns.web.form import read
from grns.web.page import WebPage
from grns.web.page_request import PageRequest, WebContext
from grns.web.security_headers import PageSecurityHeaders

# A path that another one would fit, too, stands before it.
_NOUNS = (
    overview, issue, operation, task_list, edit, task, view, worker, pool, event, message, webhook, key,
    workspace, installation, help, login,
)  # fmt: skip
PAGES: tuple[WebPage, ...] = tuple(page for noun in _NOUNS for page in noun.pages.found)
# Where only forms lead. Browsers look there, too, once somebody loads again what a form was answered with.
_FORMS = {page.path for page in PAGES if page.method == "POST"} - {
    page.path for page in PAGES if page.method == "GET"
}

# Who comes from another site has no cookie with them: it is kept for pages of ours. From this one on they do.
_AGAIN = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0">'
    "<title>grns</title></head><body><p>One moment …</p></body></html>"
)
_TOKEN = "_token"  # noqa: S105 - the name of a field


def make_web(room: WebContext) -> ASGIApp:
    """Return the app that shows pages."""
    routes = [Route(page.path, _endpoint(room, page), methods=[page.method]) for page in PAGES]
    files = Route(f"{static.PREFIX}{{name:path}}", _file, methods=["GET"])

    async def apologize(request: Request, trace_id: str) -> Response:
        said = problem.of(RuntimeError())
        return await _trouble(PageRequest(room, request, None), said, trace_id=trace_id)

    async def misled(request: Request) -> Response:
        return await _entered(room, request, _misled, is_open=False)

    async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
        answer = await _entered(room, Request(scope, receive), _missing, is_open=False)
        await answer(scope, receive, send)

    forms = [Route(path, misled, methods=["GET"]) for path in sorted(_FORMS)]
    router = Router([files, *routes, *forms], redirect_slashes=False, default=nothing)
    return PageSecurityHeaders(router, emit=room.context.emit, apology=apologize)


async def _file(request: Request) -> Response:
    request.scope[OPERATION] = "web_static"
    return await static.serve(request)


async def _missing(_call: PageRequest) -> Response:
    raise NotFoundError("there is no such page")


async def _misled(call: PageRequest) -> Response:
    detail = "only a form leads here: go back to its page"
    said = Problem("about:blank", "Method Not Allowed", 405, "form_only", detail)
    return await _trouble(call, said)


def _endpoint(room: WebContext, page: WebPage) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        request.scope[OPERATION] = page.name
        return await _entered(room, request, page.handler, is_open=page.is_open)

    return answer


async def _entered(
    room: WebContext,
    request: Request,
    handler: Callable[[PageRequest], Awaitable[Response]],
    *,
    is_open: bool,
) -> Response:
    """Let somebody in, have the page answer, and say what went wrong."""
    call = PageRequest(room, request, None)
    try:
        call.who = await room.entry.user(request)
        if call.who is None and not is_open:
            return _router(call)
        if request.method == "POST":
            call.form = await read(request, is_open=is_open)
            # Whoever logs in has the form of no session: who they were until then says nothing.
            if call.who is not None and not is_open:
                room.entry.check(request, call.who, call.form.text(_TOKEN) or "")
        if call.who is not None and not call.who.principal.reaches(call.place):
            raise NotFoundError(f"there is no workspace {call.place}")
        return await handler(call)
    except ApiRefusal as error:
        return await _trouble(call, error.problem)
    except GrnsError as error:
        if isinstance(error, UnavailableError):
            room.context.emit(RequestFailed(request.scope.get(OPERATION, "web_none"), str(error)))
        return await _trouble(call, problem.of(error))


def _router(call: PageRequest) -> Response:
    """Lead somebody who has to show a key to where that is done, and then back."""
    if call.is_pulse:
        return Response(status_code=401, headers={"HX-Refresh": "true"})
    if call.request.method != "GET":
        return RedirectResponse("/login", status_code=303)
    if not is_ours(call.request):
        return HTMLResponse(_AGAIN)
    path, query = call.request.url.path, call.request.url.query
    back = path + (f"?{query}" if query else "")
    return RedirectResponse(call.link_of("/login", next=None if back == "/" else back), status_code=303)


async def _trouble(call: PageRequest, said: Problem, *, trace_id: str | None = None) -> Response:
    """Return a page that says what could not be done."""
    call.trouble = None  # nothing that was written there mends it
    return await call.show("problem.html", status=said.status, problem=said, trace_id=trace_id)
