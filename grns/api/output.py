"""What tasks stream: for those who watch, and from HTTP workers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Header, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from grns.api.access import Agent, Reader, RequestContext
from grns.api.answer import Answer
from grns.api.queue import TokenRequest, verified
from grns.api.request import Body, around, strict_body
from grns.api.route import router
from grns.api.stream import EVENT_STREAM, KEY_ENDED, RETRY, opened
from grns.api.task import TaskId, one
from grns.errors import InvalidInputError
from grns.model.output import ENDED, LONGEST_TEXT, SUSPENDED, kind_of, value_of
from grns.model.output_view import OutputEvent, place_of

routes = router("tasks")

_LOOK_SECONDS = 1.0
_SILENCE_SECONDS = 15.0
# A client that reconnects is authenticated again.
_LONGEST_SECONDS = 600.0

ChunkPlace = Annotated[str, Field(pattern=r"^[0-9]{1,19}\.[0-9]{1,19}$")]


class OutputChunk(Body):
    """A chunk: text or a JSON value, and what it is."""

    kind: Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,31}$")] | None = None
    data: Any


class OutputRequest(TokenRequest):
    """Stream chunks, the first of which has the number `first` within its attempt; they are numbered from 1.

    With `is_suspended`, the task is about to wait: its next attempt goes on behind these chunks. With
    `has_ended`, the attempt streams no more.
    """

    first: Annotated[int, Field(ge=1, le=2**53, strict=True)]
    chunks: Annotated[list[OutputChunk], Field(max_length=100)]
    is_suspended: Annotated[bool, Field(strict=True)] = False
    has_ended: Annotated[bool, Field(strict=True)] = False


class OutputResponse(BaseModel):
    """How many chunks were sent: all of them, unless the broker is away."""

    sent: int


@routes.get(
    "/tasks/{task_id}/stream",
    responses={200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}, "description": "Events"}},
)
async def stream_task(
    request_context: Reader,
    task_id: TaskId,
    after: Annotated[
        str | None, Query(description="Go on behind the chunk with this id.", max_length=40)
    ] = None,
    last_event_id: Annotated[
        str | None, Header(description="The same, as a browser says it.", max_length=40)
    ] = None,
) -> Response:
    """Stream what a task streams, as server-sent events, until it ends.

    Events are `state`, `chunk`, `reset` (forget all chunks: a later attempt begins), `gap` (chunks are lost)
    and `end`. The `id` of a chunk is `<attempt>.<number>`. After `end`, do not reconnect.
    """
    behind = last_event_id or after
    if behind is not None and place_of(behind) is None:
        raise InvalidInputError("bad_parameter", "go on behind an id of a chunk, as 1.17")
    async with request_context.reading() as database:
        await one(request_context, database, task_id)
    readers = request_context.context.output_readers
    return opened(request_context, readers, lambda ended: _lines(request_context, task_id, behind, ended))


@routes.post("/queue/stream", response_model=OutputResponse)
async def stream_claim(
    request_context: Agent,
    body: Annotated[
        OutputRequest,
        strict_body(OutputRequest, lambda context: around(context.result_limits), code="bad_stream"),
    ],
) -> Response:
    """Stream chunks of a claimed task to those who watch it. Nothing stores them: some may be lost."""
    token = await verified(request_context, body)
    chunks = [(kind_of(chunk.kind, chunk.data), chunk.data) for chunk in body.chunks]
    mark = SUSPENDED if body.is_suspended else ENDED if body.has_ended else None
    for _, data in chunks:
        if not isinstance(data, str):
            value_of(data)
        elif len(data) > LONGEST_TEXT:
            raise InvalidInputError("bad_stream", f"a chunk of text has at most {LONGEST_TEXT:,} characters")
    if chunks:
        secrets = request_context.context.agent_secrets
        scrubber = await secrets.scrubber(request_context.reading_attempt, token)
        if scrubber is not None:
            chunks = await asyncio.to_thread(lambda: [(kind, scrubber.value(data)) for kind, data in chunks])
    sent = await request_context.context.agent_outputs.send(
        request_context.reading_attempt, token, body.first, chunks, mark=mark
    )
    return Answer({"sent": sent})


async def _lines(
    request_context: RequestContext, task_id: str, after: str | None, ended: asyncio.Event
) -> AsyncIterator[bytes]:
    yield RETRY
    context = request_context.context
    ends_at, told_at = time.monotonic() + _LONGEST_SECONDS, time.monotonic()
    events = context.outputs.events(
        task_id, workspace=request_context.workspace, after=after, silence_seconds=_LOOK_SECONDS
    )
    async with aclosing(events):
        async for event in events:
            if ended.is_set():
                yield KEY_ENDED
            if ended.is_set() or context.stopping.is_set() or time.monotonic() > ends_at:
                return
            if event.event != "silence":
                yield _line(event)
            elif time.monotonic() > told_at + _SILENCE_SECONDS:
                yield b": nothing new\n\n"
            else:
                continue
            told_at = time.monotonic()


def _line(event: OutputEvent) -> bytes:
    said = {name: getattr(event, name) for name in OutputEvent.__slots__ if name != "event"}
    data = json.dumps({name: value for name, value in said.items() if value is not None})
    id_ = "" if event.place is None else f"id: {event.place}\n"
    return f"{id_}event: {event.event}\ndata: {data}\n\n".encode()
