"""Events: the latest ones, and those that come."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from grns.model.events import PAYLOADS
from grns.web import preferences as look
from grns.web.api_client import ApiRefusal
from grns.web.page import WebPages
from grns.web.page_request import PageRequest

pages = WebPages()

_LIMIT = 50
_KINDS = (
    "evt.task.*",
    "dlq.task.*",
    "dlq.message.*",
    *(kind for kind in PAYLOADS if kind.startswith("evt.")),
)


@pages.get("/events")
async def events(call: PageRequest) -> Response:
    """List the latest events; the page's script goes on with those that come."""
    wanted, trouble = _wanted(call), None
    try:
        page = await call.ask("/events", **wanted, limit=_LIMIT, cursor=call.query("cursor"))
    except ApiRefusal as error:
        if error.problem.status != 400:
            raise
        page, trouble = {"items": [], "next_cursor": None, "is_partial": False}, error.problem.detail
    is_first = call.query("cursor") is None and trouble is None
    latest = page["items"][0]["seq"] if page["items"] else None
    return await call.show(
        "events.html",
        status=400 if trouble else 200,
        rows=page["items"],
        next_cursor=page["next_cursor"],
        is_partial=page["is_partial"],
        kind=call.query("kind"),
        task_id=call.query("task_id"),
        kinds=_KINDS,
        trouble=trouble,
        zone=look.read(call.request).short(),
        stream=call.link("/events/stream", **wanted, cursor=latest) if is_first else None,
    )


@pages.get("/events/stream")
async def follow_events(call: PageRequest) -> Response:
    """Tell of events as they come."""
    return _EventText(call, {**_wanted(call), "cursor": call.query("cursor")})


def _wanted(call: PageRequest) -> dict[str, Any]:
    return {"kind": call.query("kind"), "task_id": call.query("task_id")}


class _EventText(Response):
    """The API's own stream, passed on."""

    def __init__(self, call: PageRequest, query: dict[str, Any]) -> None:
        super().__init__()
        self._call = call
        self._query = query

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        call, headers = self._call, {"accept": "text/event-stream"}
        last = call.request.headers.get("last-event-id")
        if last is not None:
            headers["last-event-id"] = last
        principal = call.user.principal
        await call.room.inside.pass_on(principal, "/events", call.named(self._query), headers, receive, send)
