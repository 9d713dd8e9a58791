"""Webhooks: creating and changing them, and their deliveries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from grns.api.in_process import ApiProblemError
from grns.errors import InvalidInputError
from grns.web.form import Form
from grns.web.page_request import PageRequest, WebPages

pages = WebPages()

_TABS = ("all", "pending", "failed", "delivered")
_SEPARATORS = re.compile(r"[\s,]+")


@pages.get("/webhooks")
async def webhooks(request: PageRequest, made: Mapping[str, Any] | None = None) -> Response:
    """List the webhooks, after one that was just created."""
    page = await request.fetch("/webhooks", cursor=request.query("cursor"))
    return await request.render(
        "webhooks.html", webhook=None, rows=page["items"], next_cursor=page["next_cursor"], made=made
    )


@pages.post("/webhooks")
async def create_webhook(request: PageRequest) -> Response:
    """Create a webhook and show its secret. No other page shows it again."""
    request.require("admin")
    made = None
    try:
        made = await request.change("/webhooks", _body(request.fields))
    except ApiProblemError as error:
        request.keep_form(error, "/webhooks")
    return await webhooks(request, made)


@pages.get("/webhooks/{webhook_id}")
async def webhook(request: PageRequest, made: Mapping[str, Any] | None = None) -> Response:
    """Show a webhook and its deliveries, after its secret if that was just created."""
    path, tab = _path(request), request.query("state") or "all"
    tab = tab if tab in _TABS else "all"
    page = await request.fetch(
        f"{path}/deliveries", state=None if tab == "all" else tab, cursor=request.query("cursor")
    )
    return await request.render(
        "webhook.html",
        webhook=await request.fetch(path),
        made=made,
        tabs=_TABS,
        tab=tab,
        rows=page["items"],
        next_cursor=page["next_cursor"],
        is_partial=page["is_partial"],
    )


@pages.post("/webhooks/{webhook_id}")
async def edit_webhook(request: PageRequest) -> Response:
    """Change the URL, the kinds or the description of a webhook, or enable or disable it."""
    request.require("admin")
    path, form = _path(request), request.fields
    changes: dict[str, Any] = {"is_enabled": "is_enabled" in form, **_body(form)}
    try:
        await request.change(path, changes, method="PATCH", etag=f'"{form.integer("version") or 0}"')
    except (InvalidInputError, ApiProblemError) as error:
        request.keep_form(error, path)
        return await webhook(request)
    return request.redirect(path, notice="webhook")


@pages.post("/webhooks/{webhook_id}/rotate")
async def rotate_webhook(request: PageRequest) -> Response:
    """Create a new secret for a webhook and show it."""
    request.require("admin")
    return await webhook(request, await request.change(f"{_path(request)}/rotate", {}))


@pages.post("/webhooks/{webhook_id}/ping")
async def ping_webhook(request: PageRequest) -> Response:
    """Send a test event to a webhook."""
    seq = (await request.change(f"{_path(request)}/ping"))["seq"]
    return request.redirect(f"{_path(request)}/deliveries/{seq}", notice="pinged")


@pages.post("/webhooks/{webhook_id}/delete")
async def delete_webhook(request: PageRequest) -> Response:
    """Delete a webhook."""
    await request.change(_path(request), method="DELETE")
    return request.redirect("/webhooks", notice="deleted")


@pages.get("/webhooks/{webhook_id}/deliveries/{seq:int}")
async def delivery(request: PageRequest) -> Response:
    """Show the delivery of one event."""
    found = await request.fetch(_delivery_path(request))
    return await request.render("delivery.html", webhook_id=request.name("webhook_id"), delivery=found)


@pages.post("/webhooks/{webhook_id}/deliveries/{seq:int}/resend")
async def resend_delivery(request: PageRequest) -> Response:
    """Send an event to a webhook again."""
    path = _delivery_path(request)
    await request.change(f"{path}/resend")
    return request.redirect(path, notice="delivery")


def _path(request: PageRequest) -> str:
    return f"/webhooks/{request.name('webhook_id')}"


def _delivery_path(request: PageRequest) -> str:
    return f"{_path(request)}/deliveries/{request.path_params['seq']}"


def _body(form: Form) -> dict[str, Any]:
    kinds = [kind for kind in _SEPARATORS.split(form.text("kinds") or "") if kind]
    return {"url": form.text("url") or "", "kinds": kinds, "description": form.text("description")}
