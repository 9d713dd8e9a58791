"""API keys: who may do what."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from grns.access.principals import SCOPES
from grns.errors import InvalidInputError
from grns.model import duration
from grns.web.api_client import ApiRefusal
from grns.web.page import WebPages
from grns.web.page_request import PageRequest, name

pages = WebPages()


@pages.get("/keys")
async def keys(call: PageRequest) -> Response:
    """List the keys of the workspace, or all there are."""
    return await _shown(call)


@pages.post("/keys")
async def create_key(call: PageRequest) -> Response:
    """Make a key, and show it: this once, on this page alone."""
    try:
        made = await _made(call)
    except (InvalidInputError, ApiRefusal) as error:
        call.mend(error, "/keys")
        made = None
    return await _shown(call, made=made)


async def _made(call: PageRequest) -> Any:
    form = call.form
    said: dict[str, Any] = {
        "name": form.text("name") or "",
        "scopes": form.texts("scope"),
        "all_workspaces": form.is_set("all_workspaces"),
    }
    if (pools := form.text("pools")) is not None:
        said["pools"] = pools.split()
    if (expires := form.text("expires")) is not None:
        seconds = duration.parse(expires)
        if seconds is None:
            raise InvalidInputError("bad_expiry", "expires: write 30d or 12h")
        said["expires_seconds"] = seconds
    return await call.act("/keys", said)


@pages.post("/keys/{key_id}/revoke")
async def revoke_key(call: PageRequest) -> Response:
    """End a key for good."""
    await call.act(f"/keys/{name(call.request.path_params['key_id'])}/revoke")
    return call.go("/keys", said="revoked")


async def _shown(call: PageRequest, made: dict[str, Any] | None = None) -> Response:
    is_everywhere = call.user.principal.workspace is None
    every = is_everywhere and call.query("workspace") is None
    page = await call.ask("/keys", all_workspaces="true" if every else None, cursor=call.query("cursor"))
    return await call.show(
        "keys.html",
        rows=page["items"],
        next_cursor=page["next_cursor"],
        made=made,
        scopes=SCOPES,
        is_everywhere=is_everywhere,
    )
