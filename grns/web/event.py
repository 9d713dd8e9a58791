"""Events: the latest ones, and a stream of new ones."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from grns.api.in_process import ApiProblemError
from grns.model.events import PAYLOADS
from grns.web.formatting import DisplayPreferences
from grns.web.page_request import PageRequest, WebPages

pages = WebPages()

_LIMIT = 50
_KINDS = (
    "evt.task.*",
    "dlq.task.*",
    "dlq.message.*",
    *(kind for kind in PAYLOADS if kind.startswith("evt.")),
)


@pages.get("/events")
async def events(request: PageRequest) -> Response:
    """List the latest events; a script adds new ones."""
    query, error_text = _query(request), None
    try:
        page = await request.fetch("/events", **query, limit=_LIMIT, cursor=request.query("cursor"))
    except ApiProblemError as error:
        if error.problem.status != 400:
            raise
        page, error_text = {"items": [], "next_cursor": None, "is_partial": False}, error.problem.detail
    is_first = request.query("cursor") is None and error_text is None
    latest = page["items"][0]["seq"] if page["items"] else None
    return await request.render(
        "events.html",
        status=400 if error_text else 200,
        rows=page["items"],
        next_cursor=page["next_cursor"],
        is_partial=page["is_partial"],
        kind=request.query("kind"),
        task_id=request.query("task_id"),
        kinds=_KINDS,
        error=error_text,
        zone=DisplayPreferences.of(request).zone_name,
        stream=request.link("/events/stream", **query, cursor=latest) if is_first else None,
    )


@pages.get("/events/stream")
async def follow_events(request: PageRequest) -> Response:
    """Stream new events."""
    return EventStreamResponse(request, "/events", {**_query(request), "cursor": request.query("cursor")})


def _query(request: PageRequest) -> dict[str, Any]:
    return {"kind": request.query("kind"), "task_id": request.query("task_id")}


class EventStreamResponse(Response):
    """A stream of the API, passed on."""

    def __init__(self, request: PageRequest, path: str, query: dict[str, Any]) -> None:
        super().__init__()
        self._request = request
        self._path = path
        self._query = query

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        request, headers = self._request, {"accept": "text/event-stream"}
        last = request.headers.get("last-event-id")
        if last is not None:
            headers["last-event-id"] = last
        query = request.in_workspace(self._query)
        await request.context.api.stream(request.user.principal, self._path, query, headers, receive, send)
