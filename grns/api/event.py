"""Events: the log of a workspace, page by page, or as it grows."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Header, Query, Request
from starlette.responses import Response

from grns.api.access import Reader
from grns.api.answer import Answer
from grns.api.page import Cursor, Limit, PageOf, answer
from grns.api.route import router
from grns.api.stream import EVENT_STREAM, stream
from grns.errors import InvalidInputError
from grns.outbox import events as event
from grns.outbox.events import EventQuery, LogEvent, place

routes = router("events")


@routes.get(
    "/events",
    response_model=PageOf[LogEvent],
    responses={200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}, "description": "Events"}},
)
async def list_events(
    request: Request,
    request_context: Reader,
    kind: Annotated[
        list[str] | None, Query(description="Only these, as `evt.task.dead` or `evt.task.*`.")
    ] = None,
    task_id: Annotated[str | None, Query(pattern="^[A-Za-z0-9_-]{1,64}$", description="Only of it.")] = None,
    order: Annotated[
        Literal["latest", "oldest"],
        Query(
            description="The latest first, or the oldest: then there is always a cursor to come back with."
        ),
    ] = "latest",
    limit: Limit = 50,
    cursor: Cursor = None,
    last_event_id: Annotated[
        str | None, Header(description="Of a stream: go on behind this event.", max_length=20)
    ] = None,
) -> Response:
    """List the events of the workspace.

    With `Accept: text/event-stream`, stream them: from now on, or after `Last-Event-ID` or `cursor`. The
    `id` of an event is its number in the event log; no event appears below it later. The stream ends from
    time to time: reconnect.
    """
    wanted = EventQuery(request_context.workspace, kind or (), task_id)
    if EVENT_STREAM in request.headers.get("accept", ""):
        return await stream(request_context, wanted, last_event_id or cursor)
    if last_event_id is not None:
        raise InvalidInputError("bad_parameter", "Last-Event-ID goes with `Accept: text/event-stream`")
    log = await request_context.context.tail.bounds()
    async with request_context.reading() as database:
        if order == "latest":
            return answer(await event.list_events(database, wanted, log, limit=limit, after=cursor))
        behind = 0 if cursor is None else place(cursor)
        found, seen = await event.read_events(database, wanted, log, behind=behind, limit=limit)
    is_partial = len(found) < limit and seen < log.settled
    return Answer({"items": found, "next_cursor": str(seen), "is_partial": is_partial})
