"""API keys and workspaces."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from grns.access.principals import SCOPES
from grns.api.in_process import ApiProblemError
from grns.errors import InvalidInputError
from grns.model import duration
from grns.web.page_request import PageRequest, WebPages

pages = WebPages()


@pages.get("/keys")
async def keys(request: PageRequest, made: dict[str, Any] | None = None) -> Response:
    """List the keys of the workspace, or of all workspaces, after one that was just created."""
    is_everywhere = request.user.principal.workspace is None
    lists_all = is_everywhere and request.named_workspace is None
    page = await request.fetch(
        "/keys", all_workspaces="true" if lists_all else None, cursor=request.query("cursor")
    )
    return await request.render(
        "keys.html",
        rows=page["items"],
        next_cursor=page["next_cursor"],
        made=made,
        scopes=SCOPES,
        is_everywhere=is_everywhere,
    )


@pages.post("/keys")
async def create_key(request: PageRequest) -> Response:
    """Create a key and show it. No other page shows it again."""
    made = None
    try:
        made = await request.change("/keys", _new_key(request))
    except (InvalidInputError, ApiProblemError) as error:
        request.keep_form(error, "/keys")
    return await keys(request, made)


def _new_key(request: PageRequest) -> dict[str, Any]:
    form = request.fields
    body: dict[str, Any] = {
        "name": form.text("name") or "",
        "scopes": form.getlist("scope"),
        "all_workspaces": "all_workspaces" in form,
    }
    for name in ("pools", "agents"):
        if (bound := form.text(name)) is not None:
            body[name] = bound.split()
    if (expires := form.text("expires")) is not None:
        seconds = duration.parse(expires)
        if seconds is None:
            raise InvalidInputError("bad_expiry", "expires: write 30d or 12h")
        body["expires_seconds"] = seconds
    return body


@pages.post("/keys/{key_id}/revoke")
async def revoke_key(request: PageRequest) -> Response:
    """Revoke a key."""
    await request.change(f"/keys/{request.name('key_id')}/revoke")
    return request.redirect("/keys", notice="revoked")


@pages.get("/workspaces")
async def workspaces(request: PageRequest) -> Response:
    """List the workspaces."""
    page = await request.fetch("/workspaces", cursor=request.query("cursor"))
    return await request.render(
        "workspaces.html",
        rows=page["items"],
        next_cursor=page["next_cursor"],
        is_everywhere=request.user.principal.workspace is None,
    )


@pages.post("/workspaces")
async def create_workspace(request: PageRequest) -> Response:
    """Create a workspace."""
    try:
        await request.change("/workspaces", {"workspace": request.fields.text("name") or ""})
    except ApiProblemError as error:
        request.keep_form(error, "/workspaces")
        return await workspaces(request)
    return request.redirect("/workspaces", notice="workspace")
