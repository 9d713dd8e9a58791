"""Dead-letter messages that belong to no task: showing, correcting, resending and discarding them."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID

from starlette.responses import Response

from grns.api.in_process import ApiProblemError
from grns.errors import InvalidInputError, NotFoundError
from grns.web.page_request import PageRequest, WebPages

pages = WebPages()

_HEX_BYTES, _HEX_ROW_BYTES = 2048, 16


@pages.get("/messages")
async def messages(request: PageRequest) -> Response:
    """List the messages that are neither resent nor discarded."""
    page = await request.fetch("/dead-letters", what="message", cursor=request.query("cursor"))
    return await request.render("messages.html", rows=page["items"], next_cursor=page["next_cursor"])


@pages.get("/messages/{message_id}")
async def message(request: PageRequest) -> Response:
    """Show a message with its headers and its body."""
    found = await request.fetch(_path(request))
    return await request.render(
        "message.html",
        message=found,
        body=_json_object(found["body_text"]),
        dump=_hex_dump(found),
        is_new=found["state"] == "new",
    )


@pages.post("/messages/{message_id}/resend")
async def resend_message(request: PageRequest) -> Response:
    """Send a message again, unchanged or corrected."""
    try:
        await request.change(f"{_path(request)}/resend", _resend_body(request))
    except (InvalidInputError, ApiProblemError) as error:
        request.keep_form(error, _path(request))
        return await message(request)
    return request.redirect(_path(request), notice="resent")


def _resend_body(request: PageRequest) -> dict[str, Any]:
    form, limits = request.fields, request.context.api_context.envelope_limits
    body: dict[str, Any] = {"reason": form.text("reason")}
    for name in ("subject", "headers", "body"):
        # An unchanged field is sent byte for byte as it was received.
        if form.text(name) is not None and form.text(name) != form.text(f"{name}_seen"):
            body[name] = form.text(name) if name == "subject" else form.json(name, limits)
    if not isinstance(body.get("headers", {}), dict) or not isinstance(body.get("body", {}), dict):
        raise InvalidInputError("bad_message", "headers and body are JSON objects")
    return body


@pages.post("/messages/{message_id}/discard")
async def discard_message(request: PageRequest) -> Response:
    """Discard a message."""
    await request.change(f"{_path(request)}/discard", {"reason": request.fields.text("reason")})
    return request.redirect("/messages", notice="discarded")


def _path(request: PageRequest) -> str:
    try:
        return f"/messages/{UUID(request.path_params['message_id'])}"
    except ValueError as error:
        raise NotFoundError("there is no such page") from error


def _json_object(text: str | None) -> Any:
    """Parse a body; return None unless it is a JSON object, which the form can edit."""
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _hex_dump(message: dict[str, Any]) -> str | None:
    """Return the beginning of a binary body as hexadecimal rows, or None if the body is text."""
    if message["body_text"] is not None:
        return None
    body = base64.b64decode(message["body_base64"])[:_HEX_BYTES]
    rows = [(at, body[at : at + _HEX_ROW_BYTES]) for at in range(0, len(body), _HEX_ROW_BYTES)]
    return "\n".join(
        f"{at:04x}  {row.hex(' '):<47}  " + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        for at, row in rows
    )
