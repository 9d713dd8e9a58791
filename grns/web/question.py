"""Questions to people: the inbox, a question with its form, and the page of a link."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from starlette.responses import Response

from grns.errors import InvalidInputError, NotFoundError
from grns.model.form import read_answer
from grns.model.question import TaskQuestion
from grns.tasks.questions import Questions, linked
from grns.web.page_request import PageRequest, WebPages

pages = WebPages()

_ROWS = 25
_FIELD = "answer."
_STATES = ("open", "answered", "expired", "ended", "all")


@pages.get("/questions")
async def questions(request: PageRequest) -> Response:
    """List what waits for people."""
    state = request.query("state") or "open"
    page = await request.fetch(
        "/questions",
        limit=_ROWS,
        state=state,
        asked_of=request.query("asked_of"),
        cursor=request.query("cursor"),
    )
    return await request.render(
        "questions.html",
        rows=page["items"],
        next_cursor=page["next_cursor"],
        state=state,
        states=_STATES,
        asked_of=request.query("asked_of"),
    )


@pages.get("/questions/{question_id}")
async def question(request: PageRequest) -> Response:
    """Show a question, and its form."""
    found = await request.fetch(f"/questions/{_id(request)}")
    return await request.render(
        "question.html", question=found, may_answer=request.may("answer"), secret=None
    )


@pages.post("/questions/{question_id}/answer")
async def answer(request: PageRequest) -> Response:
    """Answer a question."""
    path = f"/questions/{_id(request)}"
    found = await request.fetch(path)
    said = {
        "answer": _answer(request, found["form"]),
        "digest": request.fields.text("digest"),
        "comment": request.fields.text("comment"),
    }
    await request.change(f"{path}/answer", {name: value for name, value in said.items() if value is not None})
    return request.redirect(path, notice="answered")


@pages.get("/q/{question_id}", is_public=True)
async def linked_question(request: PageRequest) -> Response:
    """Show a question to a person who has its link. Looking at it changes nothing: mail scanners do."""
    store = await _linked(request, request.query("t") or "")
    found = await store.get(_id(request))
    return await _render_linked(request, found, request.query("t"))


@pages.post("/q/{question_id}", is_public=True, takes_text=True)
async def answer_linked(request: PageRequest) -> Response:
    """Answer a question by its link, which is used up then."""
    secret = request.fields.text("t") or ""
    store = await _linked(request, secret)
    found = await store.get(_id(request))
    try:
        found = await store.answer(
            found.id,
            _answer(request, found.form),
            digest=request.fields.text("digest") or "",
            comment=request.fields.text("comment"),
            secret=secret,
        )
    except InvalidInputError as error:
        return await _render_linked(request, found, secret, error=str(error), status=400)
    return await _render_linked(request, found, None)


async def _render_linked(
    request: PageRequest,
    found: TaskQuestion,
    secret: str | None,
    *,
    error: str | None = None,
    status: int = 200,
) -> Response:
    return await request.render(
        "linked_question.html", question=found, may_answer=True, secret=secret, error=error, status=status
    )


async def _linked(request: PageRequest, secret: str) -> Questions:
    context = request.context.api_context
    return await linked(context.database, context.transport, _id(request), secret)


def _id(request: PageRequest) -> UUID:
    try:
        return UUID(request.path_params["question_id"])
    except ValueError:
        raise NotFoundError("there is no such question") from None


def _answer(request: PageRequest, form: dict[str, Any]) -> dict[str, Any]:
    texts = {name: request.fields.getlist(f"{_FIELD}{name}") for name in form["properties"]}
    if (decision := request.fields.text("decision")) is not None:  # of an approval
        return {"approved": decision == "approve"}
    return read_answer(form, texts)
