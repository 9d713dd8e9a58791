"""Messages that belong to no task: what nobody could accept, kept whole, mended, sent again."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID

from starlette.responses import Response

from grns.errors import InvalidInputError, NotFoundError
from grns.web.api_client import ApiRefusal
from grns.web.page import WebPages
from grns.web.page_request import PageRequest

pages = WebPages()

_HEX_BYTES = 2048
_ROW = 16


@pages.get("/messages")
async def messages(call: PageRequest) -> Response:
    """List the messages that nobody has dealt with."""
    page = await call.ask("/dead-letters", what="message", cursor=call.query("cursor"))
    return await call.show("messages.html", rows=page["items"], next_cursor=page["next_cursor"])


@pages.get("/messages/{message_id}")
async def message(call: PageRequest) -> Response:
    """Show a message, whole."""
    return await _shown(call)


async def _shown(call: PageRequest) -> Response:
    found = await call.ask(f"/messages/{_id(call)}")
    return await call.show(
        "message.html",
        message=found,
        body=_parsed(found["body_text"]),
        dump=_dump(found),
        is_new=found["state"] == "new",
    )


@pages.post("/messages/{message_id}/resend")
async def resend_message(call: PageRequest) -> Response:
    """Send a message again, as it was or mended."""
    try:
        await call.act(f"/messages/{_id(call)}/resend", _order(call))
    except (InvalidInputError, ApiRefusal) as error:
        call.mend(error, f"/messages/{_id(call)}")
        return await _shown(call)
    return call.go(f"/messages/{_id(call)}", said="resent")


def _order(call: PageRequest) -> dict[str, Any]:
    form, limits = call.form, call.room.context.envelope_limits
    said: dict[str, Any] = {"reason": form.text("reason")}
    for field in ("subject", "headers", "body"):
        # What was not touched is sent as it came, byte for byte.
        if form.text(field) is not None and form.text(field) != form.text(f"{field}_seen"):
            said[field] = form.text(field) if field == "subject" else form.document(field, limits)
    if not isinstance(said.get("headers", {}), dict) or not isinstance(said.get("body", {}), dict):
        raise InvalidInputError("bad_message", "headers and body are JSON objects")
    return said


@pages.post("/messages/{message_id}/discard")
async def discard_message(call: PageRequest) -> Response:
    """Close a message."""
    await call.act(f"/messages/{_id(call)}/discard", {"reason": call.form.text("reason")})
    return call.go("/messages", said="discarded")


def _id(call: PageRequest) -> str:
    try:
        return str(UUID(call.request.path_params["message_id"]))
    except ValueError as error:
        raise NotFoundError("there is no such page") from error


def _parsed(text: str | None) -> Any:
    """Return what a body says, None where it is no JSON object that could be mended here."""
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _dump(found: dict[str, Any]) -> str | None:
    """Return the beginning of a body that is no text, byte by byte."""
    if found["body_text"] is not None:
        return None
    body = _decoded(found["body_base64"])[:_HEX_BYTES]
    return "\n".join(
        f"{place:04x}  {body[place : place + _ROW].hex(' '):<47}  "
        + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in body[place : place + _ROW])
        for place in range(0, len(body), _ROW)
    )


def _decoded(text: str) -> bytes:
    return base64.b64decode(text)
