"""Questions to people: the inbox, and answers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from grns.api.access import Answerer, Reader
from grns.api.answer import Answer
from grns.api.page import Cursor, Limit, PageOf, answer
from grns.api.request import Body, strict_body
from grns.api.route import router
from grns.model.question import QuestionSummary, TaskQuestion
from grns.tasks.questions import LONGEST_COMMENT, LONGEST_LINK_SECONDS

routes = router("questions")

_DAY = 86_400.0


class AnswerRequest(Body):
    """An answer. `digest` is that of the question as it was shown."""

    answer: dict[str, Any]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    comment: Annotated[str, Field(max_length=LONGEST_COMMENT)] | None = None


class LinkRequest(Body):
    """How long the link is valid, in seconds: at most 30 days."""

    seconds: Annotated[float, Field(ge=60, le=LONGEST_LINK_SECONDS, allow_inf_nan=False)] = 7 * _DAY


class LinkResponse(BaseModel):
    """A page on which a person with its address may answer the question, once. The address is a secret."""

    path: str
    until: datetime


@routes.get("/questions", response_model=PageOf[QuestionSummary])
async def list_questions(
    request_context: Reader,
    state: Annotated[
        str | None, Query(description="`open`, `answered`, `expired`, `ended`, or `all`.", max_length=20)
    ] = "open",
    asked_of: Annotated[str | None, Query(description="Only what asks this one.", max_length=100)] = None,
    task_id: Annotated[
        str | None, Query(pattern="^[A-Za-z0-9_-]{1,64}$", description="Only what this task asks.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List what handlers ask people, the latest first."""
    async with request_context.reading() as database:
        return answer(
            await request_context.client(database).questions.list(
                state=None if state == "all" else state,
                asked_of=asked_of,
                task_id=task_id,
                limit=limit,
                after=cursor,
            )
        )


@routes.get("/questions/{question_id}", response_model=TaskQuestion)
async def read_question(
    request_context: Reader,
    question_id: UUID,
    is_seen: Annotated[bool, Query(description="Whether a person reads it now.")] = True,
) -> Response:
    """Return a question with all that is shown, its form and its digest."""
    sees = is_seen and request_context.principal.may("answer", request_context.workspace)
    async with request_context.reading() as database:
        return Answer(await request_context.client(database).questions.get(question_id, sees=sees))


@routes.post("/questions/{question_id}/answer", response_model=TaskQuestion)
async def answer_question(
    request_context: Answerer,
    body: Annotated[AnswerRequest, strict_body(AnswerRequest, code="bad_answer")],
    question_id: UUID,
) -> Response:
    """Answer a question: its task runs again. An answer to something else than is asked now is refused."""
    async with request_context.writing() as database:
        return Answer(
            await request_context.client(database).questions.answer(
                question_id, body.answer, digest=body.digest, comment=body.comment
            )
        )


@routes.post("/questions/{question_id}/link", response_model=LinkResponse)
async def link_question(
    request_context: Answerer,
    body: Annotated[LinkRequest, strict_body(LinkRequest, code="bad_link")],
    question_id: UUID,
) -> Response:
    """Make a link with which one person without a key may answer a question, once."""
    async with request_context.writing() as database:
        made = await request_context.client(database).questions.link(question_id, seconds=body.seconds)
    return Answer({"path": f"/q/{question_id}?t={made.secret}", "until": made.until})
