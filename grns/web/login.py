"""Log-in, log-out, and display preferences."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from grns.errors import UnauthenticatedError
from grns.web.authentication import check_origin, cookie_name, is_secure, set_cookie
from grns.web.formatting import THEME, THEMES, TIME_FORMS, TIMES, times_cookie
from grns.web.page_request import PageRequest, WebPages, local_path

pages = WebPages()

_YEAR_SECONDS = 366 * 86_400


@pages.get("/login", is_public=True)
async def login(request: PageRequest) -> Response:
    """Show the log-in form, unless the token in the URL suffices."""
    back, token = _back(request.query("next")), request.query("token") or ""
    authenticator = request.context.authenticator
    if request.current_user is not None:
        return RedirectResponse(back, status_code=303)
    if authenticator.is_invited(token):
        return _logged_in(request, back, await authenticator.log_in(token))
    if not await authenticator.may_bootstrap(token):
        token = ""
    return await request.render("login.html", back=back, token=token, is_refused=False)


@pages.post("/login", is_public=True)
async def log_in(request: PageRequest) -> Response:
    """Start a session with a key, or create the first key with the bootstrap token."""
    check_origin(request)
    back, key = _back(request.fields.text("next")), request.fields.text("key") or ""
    authenticator = request.context.authenticator
    try:
        if await authenticator.may_bootstrap(key):
            cookie, made = await authenticator.bootstrap()
            response = await request.render("first_key.html", made=made)
            set_cookie(request, response, cookie_name(request), cookie)
            return response
        return _logged_in(request, back, await authenticator.log_in(key))
    except UnauthenticatedError:
        return await request.render("login.html", status=403, back=back, token="", is_refused=True)


@pages.post("/logout")
async def log_out(request: PageRequest) -> Response:
    """End the session, for every copy of its cookie."""
    await request.context.authenticator.log_out(request.user.session)
    response = RedirectResponse("/login", status_code=303)
    response.delete_cookie(cookie_name(request), httponly=True, samesite="strict", secure=is_secure(request))
    return response


@pages.post("/preferences")
async def change_preferences(request: PageRequest) -> Response:
    """Change the theme or the form of times in this browser."""
    response = RedirectResponse(_back(request.fields.text("next")), status_code=303)
    theme, times = request.fields.text("theme"), request.fields.text("times")
    if theme in THEMES:
        set_cookie(request, response, THEME, theme, max_age_seconds=_YEAR_SECONDS)
    if times in TIME_FORMS:
        cookie = times_cookie(times, request.fields.text("zone"))
        set_cookie(request, response, TIMES, cookie, max_age_seconds=_YEAR_SECONDS)
    return response


def _back(url: str | None) -> str:
    return local_path(url) or "/"


def _logged_in(request: PageRequest, back: str, cookie: str) -> Response:
    response = RedirectResponse(back, status_code=303)
    set_cookie(request, response, cookie_name(request), cookie)
    return response
