"""Saved views: filters under a name, for everybody in the workspace."""

from __future__ import annotations

from starlette.responses import Response

from grns.model import subjects
from grns.web.page import WebPages
from grns.web.page_request import PageRequest, name

pages = WebPages()


@pages.post("/views")
async def save_view(call: PageRequest) -> Response:
    """Keep the filter under a name."""
    wanted = subjects.token(call.form.text("name") or "", name="name")
    await call.act(f"/filters/{wanted}", {"text": call.form.text("filter") or ""}, method="PUT")
    return call.go("/tasks", saved=wanted, said="saved")


@pages.post("/views/{name}/forget")
async def forget_view(call: PageRequest) -> Response:
    """Forget a view."""
    await call.act(f"/filters/{name(call.request.path_params['name'])}", method="DELETE")
    return call.go("/tasks", said="forgotten")
