"""Limits: what each allows, and which of its keys have tasks."""

from __future__ import annotations

from starlette.responses import Response

from grns.errors import InvalidInputError
from grns.web.page_request import PageRequest, WebPages

pages = WebPages()

_ROWS, _KEYS = 25, 100


@pages.get("/limits")
async def limits(request: PageRequest) -> Response:
    """List the limits."""
    page = await request.fetch("/limits", limit=_ROWS, cursor=request.query("cursor"))
    return await request.render("limits.html", rows=page["items"], next_cursor=page["next_cursor"])


@pages.get("/limits/{limit}")
async def limit(request: PageRequest) -> Response:
    """Show a limit, and its keys with the most waiting tasks."""
    path = f"/limits/{request.name('limit')}"
    found = await request.fetch(path)
    keys = (await request.fetch(f"{path}/keys", limit=_KEYS))["items"]
    return await request.render("limit.html", limit=found, rows=keys)


@pages.post("/limits/{limit}/{change}")
async def change_limit(request: PageRequest) -> Response:
    """Pause or resume a limit."""
    path, change = f"/limits/{request.name('limit')}", request.path_params["change"]
    if change == "pause":
        await request.change(f"{path}/pause", {"reason": request.fields.text("reason")})
        return request.redirect(path, notice="limit_paused")
    if change != "resume":
        raise InvalidInputError("bad_reason", "pass pause or resume")
    await request.change(f"{path}/resume")
    return request.redirect(path, notice="resumed")
