"""Webhooks: who is told of events, what came of each, and what has to be told again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from grns.errors import InvalidInputError
from grns.web.api_client import ApiRefusal
from grns.web.form import Form
from grns.web.page import WebPages
from grns.web.page_request import PageRequest, name

pages = WebPages()

_TABS = ("all", "pending", "failed", "delivered")
_BETWEEN = re.compile(r"[\s,]+")


@pages.get("/webhooks")
async def webhooks(call: PageRequest) -> Response:
    """List webhooks."""
    return await _listed(call)


@pages.post("/webhooks")
async def create_webhook(call: PageRequest) -> Response:
    """Make a webhook, and show its secret: this once, on this page alone."""
    call.need("admin")
    made = None
    try:
        made = await call.act("/webhooks", _body(call.form))
    except ApiRefusal as error:
        call.mend(error, "/webhooks")
    return await _listed(call, made=made)


@pages.get("/webhooks/{webhook_id}")
async def webhook(call: PageRequest) -> Response:
    """Show a webhook, and what it was told of."""
    return await _shown(call)


@pages.post("/webhooks/{webhook_id}")
async def edit_webhook(call: PageRequest) -> Response:
    """Change where it leads to, what it is told of, or whether it is; only as it was seen."""
    call.need("admin")
    said: dict[str, Any] = {"is_enabled": call.form.is_set("is_enabled"), **_body(call.form)}
    try:
        edition = f'"{call.form.whole("version") or 0}"'
        await call.act(_path(call), said, method="PATCH", edition=edition)
    except (InvalidInputError, ApiRefusal) as error:
        call.mend(error, _path(call))
        return await _shown(call)
    return call.go(_path(call), said="webhook")


@pages.post("/webhooks/{webhook_id}/rotate")
async def rotate_webhook(call: PageRequest) -> Response:
    """Sign with a new secret, and show it this once."""
    call.need("admin")
    return await _shown(call, made=await call.act(f"{_path(call)}/rotate", {}))


@pages.post("/webhooks/{webhook_id}/ping")
async def ping_webhook(call: PageRequest) -> Response:
    """Have it told of an event of its own."""
    told = await call.act(f"{_path(call)}/ping")
    return call.go(f"{_path(call)}/deliveries/{told['seq']}", said="pinged")


@pages.post("/webhooks/{webhook_id}/delete")
async def delete_webhook(call: PageRequest) -> Response:
    """Send nothing there any more."""
    await call.act(_path(call), method="DELETE")
    return call.go("/webhooks", said="deleted")


@pages.get("/webhooks/{webhook_id}/deliveries/{seq:int}")
async def delivery(call: PageRequest) -> Response:
    """Show what came of telling it of one event."""
    found = await call.ask(f"{_path(call)}/deliveries/{_seq(call)}")
    return await call.show("delivery.html", webhook_id=_id(call), delivery=found)


@pages.post("/webhooks/{webhook_id}/deliveries/{seq:int}/resend")
async def resend_delivery(call: PageRequest) -> Response:
    """Tell it of an event once more."""
    path = f"{_path(call)}/deliveries/{_seq(call)}"
    await call.act(f"{path}/resend")
    return call.go(path, said="told")


async def _listed(call: PageRequest, *, made: Mapping[str, Any] | None = None) -> Response:
    page = await call.ask("/webhooks", cursor=call.query("cursor"))
    return await call.show(
        "webhooks.html", webhook=None, rows=page["items"], next_cursor=page["next_cursor"], made=made
    )


async def _shown(call: PageRequest, *, made: Mapping[str, Any] | None = None) -> Response:
    tab = call.query("state")
    tab = tab if tab in _TABS else _TABS[0]
    state = None if tab == _TABS[0] else tab
    page = await call.ask(f"{_path(call)}/deliveries", state=state, cursor=call.query("cursor"))
    return await call.show(
        "webhook.html",
        webhook=await call.ask(_path(call)),
        made=made,
        tabs=_TABS,
        tab=tab,
        rows=page["items"],
        next_cursor=page["next_cursor"],
        is_partial=page["is_partial"],
    )


def _id(call: PageRequest) -> str:
    return name(call.request.path_params["webhook_id"])


def _seq(call: PageRequest) -> int:
    seq: int = call.request.path_params["seq"]
    return seq


def _path(call: PageRequest) -> str:
    return f"/webhooks/{_id(call)}"


def _body(form: Form) -> dict[str, Any]:
    kinds = [kind for kind in _BETWEEN.split(form.text("kinds") or "") if kind]
    return {"url": form.text("url") or "", "kinds": kinds, "description": form.text("description")}
