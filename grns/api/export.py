"""Dead letters, whole, for other programs: one JSON document a line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query
from starlette.responses import Response, StreamingResponse

from grns.api.access import Reader, RequestContext
from grns.api.answer import dumps
from grns.api.page import Cursor
from grns.api.route import router
from grns.api.task import FilterText, SavedName, together
from grns.dead_letters import listing
from grns.dead_letters.listing import DeadLetter
from grns.dead_letters.message import document
from grns.errors import InvalidInputError, NotFoundError
from grns.model.filter import parse
from grns.operations.model import request
from grns.postgres.database import Database, Session
from grns.postgres.paging import Page
from grns.tasks import read
from grns.tasks import search as task_page
from grns.tasks.search import TaskSummary

routes = router("dead letters")

LINES = "application/x-ndjson"
NEXT = "Grns-Next-Cursor"

# So many are read at once: each may be as large as two payloads.
_AT_ONCE = 20

Whole = Callable[[RequestContext, Database | Session, list[str]], Awaitable[list[Any]]]


@routes.get(
    "/dead-letters/export",
    response_model=None,
    responses={200: {"content": {LINES: {"schema": {"type": "string"}}}, "description": "A document a line"}},
)
async def export_dead_letters(
    request_context: Reader,
    what: Annotated[
        Literal["task", "message"], Query(description="Tasks, or messages that belong to none.")
    ] = "task",
    text: FilterText = "",
    saved: SavedName = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Lines at most.")] = 1000,
    cursor: Cursor = None,
) -> Response:
    """Export dead and failed tasks, or rejected messages, as JSON lines, the latest first.

    If there are more, the header `Grns-Next-Cursor` has the cursor to continue with.
    """
    async with request_context.reading() as database:
        wanted = await together(request_context, database, text, saved)
        if what == "message" and wanted.terms:
            raise InvalidInputError("bad_filter", "a filter chooses among tasks, and messages are none")
        if what == "task":
            # What needs a person is what can be redriven.
            needy = parse(request(action="redrive", filter=str(wanted)).filter)
            page: Page[TaskSummary] | Page[DeadLetter] = await task_page.list_tasks(
                database, workspace=request_context.workspace, wanted=needy, limit=limit, after=cursor
            )
        else:
            page = await _list_messages(request_context, database, limit, cursor)
    headers = {} if page.next_cursor is None else {NEXT: page.next_cursor}
    ids = [row.id for row in page.rows]
    lines = _lines(request_context, ids, _tasks if what == "task" else _messages)
    return StreamingResponse(lines, media_type=LINES, headers=headers)


async def _list_messages(
    request_context: RequestContext, database: Database | Session, limit: int, cursor: str | None
) -> Page[DeadLetter]:
    wanted = listing.DeadFilter(listing.MESSAGE)
    return await listing.list_dead(
        database, workspace=request_context.workspace, wanted=wanted, limit=limit, after=cursor
    )


async def _lines(request_context: RequestContext, ids: list[str], whole: Whole) -> AsyncIterator[bytes]:
    """Read some at a time, as fast as the client takes them, without those that were deleted meanwhile."""
    for first in range(0, len(ids), _AT_ONCE):
        async with request_context.reading() as database:
            found = await whole(request_context, database, ids[first : first + _AT_ONCE])
        yield b"".join(dumps(one) + b"\n" for one in found)


async def _tasks(request_context: RequestContext, database: Database | Session, ids: list[str]) -> list[Any]:
    found = await read.tasks(database, ids, request_context.workspace)
    return [found[task_id] for task_id in ids if task_id in found]


async def _messages(
    request_context: RequestContext, database: Database | Session, ids: list[str]
) -> list[Any]:
    triage, found = request_context.triage(database), list[Any]()
    for dead_letter_id in ids:
        try:
            found.append(document(await triage.message(UUID(dead_letter_id))))
        except NotFoundError:
            continue
    return found
