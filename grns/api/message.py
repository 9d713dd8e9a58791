"""Dead letters: dead and failed tasks beside messages that belong to no task; and these, one by one."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from grns.api.access import Operator, Reader
from grns.api.answer import Answer
from grns.api.page import Cursor, Limit, PageOf, answer
from grns.api.request import Reason, ReasonBody, around, strict_body
from grns.api.route import router
from grns.api.task import FilterText, SavedName, together
from grns.dead_letters import listing
from grns.dead_letters.listing import DeadLetter
from grns.dead_letters.message import DeadLetterDocument, MessagePatch, document
from grns.errors import ConflictError, UnavailableError
from grns.model.json import dumps

routes = router("dead letters")


class ResendRequest(Reason):
    """Changes to a message before it is sent again. Fields that are left out stay."""

    subject: Annotated[str, Field(max_length=400)] | None = None
    headers: dict[str, str] | None = None
    body: dict[str, Any] | None = None


@routes.get("/dead-letters", response_model=PageOf[DeadLetter])
async def list_dead_letters(
    request_context: Reader,
    what: Annotated[
        Literal["task", "message"] | None, Query(description="Only tasks, or only messages.")
    ] = None,
    text: FilterText = "",
    saved: SavedName = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List dead and failed tasks and rejected messages, the latest first. With a filter, list only tasks."""
    async with request_context.reading() as database:
        wanted = listing.DeadFilter(what, await together(request_context, database, text, saved))
        return answer(
            await listing.list_dead(
                database, workspace=request_context.workspace, wanted=wanted, limit=limit, after=cursor
            )
        )


@routes.get("/messages/{message_id}", response_model=DeadLetterDocument)
async def read_message(request_context: Reader, message_id: UUID) -> Response:
    """Return a rejected message."""
    async with request_context.reading() as database:
        return Answer(document(await request_context.triage(database).message(message_id)))


@routes.post("/messages/{message_id}/resend", response_model=DeadLetterDocument)
async def resend_message(
    request_context: Operator,
    body: Annotated[
        ResendRequest,
        strict_body(ResendRequest, lambda context: around(context.envelope_limits), code="bad_message"),
    ],
    message_id: UUID,
) -> Response:
    """Send a rejected command again, unchanged or edited.

    It must be a valid command of the same workspace: `cmd.task.submit`, `cmd.task.cancel`,
    `cmd.task.signal` or `cmd.task.execute` on its shared subject, or the same command to agents. grns sets
    the headers `Nats-…`, `Grns-…` and `traceparent`.
    """
    limits = request_context.context.envelope_limits
    content = None if body.body is None else dumps(body.body, limits).encode()
    is_unchanged = body.model_fields_set <= {"reason"}
    patch = None if is_unchanged else MessagePatch(body.subject, body.headers, content)
    async with request_context.writing() as database:
        triage = request_context.triage(database)
        await triage.message(message_id)
        if not request_context.context.transport.is_connected:
            raise UnavailableError("messages are sent again through the broker, and it does not answer")
        await triage.resend(message_id, actor=request_context.actor, reason=body.reason, mend=patch)
        return Answer(document(await triage.message(message_id)))


@routes.post("/messages/{message_id}/discard", response_model=DeadLetterDocument)
async def discard_message(request_context: Operator, body: ReasonBody, message_id: UUID) -> Response:
    """Discard a rejected message: hide it from lists."""
    async with request_context.writing() as database:
        triage = request_context.triage(database)
        if not await triage.discard_messages([message_id], actor=request_context.actor, reason=body.reason):
            found = await triage.message(message_id)
            raise ConflictError(f"message {message_id} was {found.state} before")
        return Answer(document(await triage.message(message_id)))
