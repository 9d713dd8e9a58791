"""Workspaces: whose tasks are whose."""

from __future__ import annotations

from starlette.responses import Response

from grns.web.api_client import ApiRefusal
from grns.web.page import WebPages
from grns.web.page_request import PageRequest

pages = WebPages()


@pages.get("/workspaces")
async def workspaces(call: PageRequest) -> Response:
    """List the workspaces that were made."""
    page = await call.ask("/workspaces", cursor=call.query("cursor"))
    is_everywhere = call.user.principal.workspace is None
    return await call.show(
        "workspaces.html", rows=page["items"], next_cursor=page["next_cursor"], is_everywhere=is_everywhere
    )


@pages.post("/workspaces")
async def create_workspace(call: PageRequest) -> Response:
    """Make a workspace."""
    try:
        await call.act("/workspaces", {"workspace": call.form.text("name") or ""})
    except ApiRefusal as error:
        call.mend(error, "/workspaces")
        return await workspaces(call)
    return call.go("/workspaces", said="workspace")
