"""Coming in with a key, leaving, and how pages look."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from grns.errors import UnauthenticatedError
from grns.web import preferences as look
from grns.web.address import ours
from grns.web.authenticator import cookie_name, is_secure, refuse_others
from grns.web.page import WebPages
from grns.web.page_request import PageRequest

pages = WebPages()

_YEAR_SECONDS = 366 * 86_400


@pages.get("/login", is_open=True)
async def login(call: PageRequest) -> Response:
    """Ask for a key, unless the token in the address is enough."""
    back, entry, token = _page(call.query("next")), call.room.entry, call.query("token") or ""
    if call.who is not None:
        return RedirectResponse(back, status_code=303)
    if (cookie := await entry.begin_invited(token)) is not None:
        return _logged_in(call, back, cookie)
    if not await entry.may_bootstrap(token):
        token = ""
    return await call.show("login.html", back=back, token=token, is_refused=False)


@pages.post("/login", is_open=True)
async def log_in(call: PageRequest) -> Response:
    """Let in whoever shows a key that is good."""
    refuse_others(call.request)
    back = _page(call.form.text("next"))
    entry, shown = call.room.entry, call.form.text("key") or ""
    try:
        if await entry.may_bootstrap(shown):
            cookie, made = await entry.bootstrap()
            answer = await call.show("first_key.html", made=made)
            _keep(call, answer, cookie_name(call.request), cookie)
            return answer
        cookie = await entry.begin_invited(shown) or await entry.begin(shown)
    except UnauthenticatedError:
        return await call.show("login.html", status=403, back=back, token="", is_refused=True)
    return _logged_in(call, back, cookie)


@pages.post("/logout")
async def log_out(call: PageRequest) -> Response:
    """End the session: its cookie is worthless from now on."""
    await call.room.entry.end(call.user.session)
    answer = RedirectResponse("/login", status_code=303)
    is_tls = is_secure(call.request)
    answer.delete_cookie(cookie_name(call.request), httponly=True, samesite="strict", secure=is_tls)
    return answer


@pages.post("/look")
async def change_look(call: PageRequest) -> Response:
    """Change how pages look, in this browser."""
    answer = RedirectResponse(_page(call.form.text("next")), status_code=303)
    theme, times = call.form.text("theme"), call.form.text("times")
    if theme in look.THEMES:
        _keep(call, answer, look.THEME, theme, seconds=_YEAR_SECONDS)
    if times in look.FORMS:
        _keep(call, answer, look.TIMES, look.cookie(times, call.form.text("zone")), seconds=_YEAR_SECONDS)
    return answer


def _page(said: str | None) -> str:
    return ours(said) or "/"


def _logged_in(call: PageRequest, back: str, cookie: str) -> Response:
    answer = RedirectResponse(back, status_code=303)
    _keep(call, answer, cookie_name(call.request), cookie)
    return answer


def _keep(call: PageRequest, answer: Response, name: str, value: str, *, seconds: int | None = None) -> None:
    """Set a cookie, that no script reads and no other site sends; over TLS only where we are asked so."""
    is_tls = is_secure(call.request)
    answer.set_cookie(name, value, max_age=seconds, httponly=True, samesite="strict", secure=is_tls)
