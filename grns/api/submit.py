"""Submitting over HTTP: one task, or many with an answer for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import Header
from pydantic import BaseModel
from starlette.responses import Response

from grns.api.access import RequestContext, Submitter
from grns.api.answer import Answer
from grns.api.request import Body, around, strict_fields
from grns.api.route import PREFIX, router
from grns.errors import ConflictError, GrnsError, InvalidInputError
from grns.model import problem
from grns.model.json import Limits, Unfit, parse_parts
from grns.model.submission import Submission, submission
from grns.tasks.announce import announce
from grns.tasks.submit import Prepared, Submissions, Submitted, in_order, prepare
from grns.tasks.submit_many import Bulk

routes = router("tasks")

_MOST = 500
_LIMITS = Limits(document_bytes=4 * 1024 * 1024)  # each task has limits of its own besides


class SubmitResponse(BaseModel):
    """The task, and whether this request created it."""

    id: str
    trace_id: str
    created: bool


class BatchRequest(Body):
    """Tasks to submit."""

    tasks: list[Submission]


class BatchItem(BaseModel):
    """The outcome of one submission: `created`, `exists` or `problem`.

    `exists`: its idempotency key has a task already, or it was merged into a task.
    """

    status: Literal["created", "exists", "problem"]
    id: str | None = None
    trace_id: str | None = None
    problem: dict[str, Any] | None = None


class BatchResponse(BaseModel):
    """The outcomes, in the order of the request."""

    items: list[BatchItem]


@routes.post(
    "/tasks",
    response_model=SubmitResponse,
    status_code=201,
    responses={
        200: {
            "model": SubmitResponse,
            "description": "The idempotency key has this task already, or it was merged into it",
        }
    },
)
async def create_task(
    request_context: Submitter,
    fields: Annotated[
        dict[str, Any],
        strict_fields(Submission, lambda context: around(context.payload_limits), code="bad_submission"),
    ],
    key: Annotated[
        str | None, Header(alias="Idempotency-Key", description="The same key returns the task that has it.")
    ] = None,
) -> Response:
    """Submit a task."""
    if key is not None and fields.setdefault("idempotency_key", key) not in (None, key):
        raise InvalidInputError(
            "bad_submission", "idempotency_key: the header Idempotency-Key says another one"
        )
    made = await submit_one(request_context, fields if key is None else {**fields, "idempotency_key": key})
    location = {"Location": f"{PREFIX}/tasks/{made.id}"}
    return Answer(submitted(made), status_code=201 if made.created else 200, headers=location)


@routes.post("/tasks/batch", response_model=BatchResponse)
async def create_tasks(
    request_context: Submitter,
    fields: Annotated[
        dict[str, Any], strict_fields(BatchRequest, _LIMITS, code="bad_submission", parse=parse_parts)
    ],
) -> Response:
    """Submit up to 500 tasks.

    Each has its own answer: an invalid one does not affect the others. If one needs other tasks, all are
    created, or none. The body is one JSON document of at most 4 MiB in UTF-8.
    """
    said = fields.get("tasks")
    if not isinstance(said, list) or not 0 < len(said) <= _MOST:
        raise InvalidInputError("bad_submission", f"tasks: a list of 1 to {_MOST} tasks")
    found = _all_or_none([_prepared(request_context, one) for one in said])
    prepared = [one for one in found if isinstance(one, Prepared)]
    in_order(prepared)
    with request_context.context.spans.submitting_many(len(found), parent=request_context.traceparent):
        answers = iter(await _submit(request_context, prepared))
    items = [_item(next(answers) if isinstance(one, Prepared) else one) for one in found]
    return Answer({"items": items})


def _all_or_none(found: list[Prepared | GrnsError]) -> list[Prepared | GrnsError]:
    """Refuse all of a batch in which a task needs others, if one is invalid."""
    is_whole = any(isinstance(one, Prepared) and one.submission.needs for one in found)
    if not is_whole or all(isinstance(one, Prepared) for one in found):
        return found
    why = InvalidInputError("bad_submission", "another task of this batch is invalid, and one needs others")
    return [why if isinstance(one, Prepared) else one for one in found]


async def submit_one(request_context: RequestContext, fields: dict[str, Any]) -> Submitted:
    """Create a task of theirs; those of one actor that arrive together share a statement."""
    prepared = _prepare(request_context, fields)
    with request_context.context.spans.submitting(
        task_id=prepared.id,
        task_type=prepared.submission.task_type,
        trace_id=prepared.trace_id,
        parent=request_context.traceparent,
    ):
        return await _submit_one(request_context, prepared)


async def _submit_one(request_context: RequestContext, prepared: Prepared) -> Submitted:
    if request_context.is_everywhere:
        made = await request_context.context.submitters.of(request_context.actor).submit(prepared)
        await announce(request_context.context.transport, [prepared])
        return made
    (answer,) = await _submit(request_context, [prepared])
    if isinstance(answer, GrnsError):
        raise answer
    return answer


def submitted(made: Submitted) -> dict[str, Any]:
    """Return what is told of a task that was submitted."""
    return {"id": made.id, "trace_id": made.trace_id, "created": made.created}


async def _submit(
    request_context: RequestContext, prepared: Sequence[Prepared]
) -> Sequence[Submitted | GrnsError]:
    if not prepared:
        return []
    is_whole = any(one.submission.needs for one in prepared)
    try:
        async with request_context.writing() as database:
            submissions = Submissions(database, batch_limit=_MOST, actor=request_context.actor)
            answers = await Bulk(submissions.submit_many).submit(prepared)
    except (ConflictError, InvalidInputError) as error:
        if not is_whole or len(prepared) == 1:
            raise
        return [error] * len(prepared)
    await announce(request_context.context.transport, prepared)
    return answers


def _prepared(request_context: RequestContext, said: object) -> Prepared | GrnsError:
    """Return one of many, or why it cannot be created."""
    try:
        for value in (said, *(said.values() if isinstance(said, dict) else ())):
            if isinstance(value, Unfit):
                raise value.error()
        if not isinstance(said, dict):
            raise InvalidInputError("bad_submission", "a task is a JSON object")
        return _prepare(request_context, said)
    except GrnsError as error:
        return error


def _prepare(request_context: RequestContext, fields: dict[str, Any]) -> Prepared:
    said = {"workspace": request_context.workspace, **fields}
    if said.get("trace_id") is None:
        said["trace_id"] = request_context.trace_id
    found = submission(**said)
    request_context.enter(found.workspace)
    return prepare(found, request_context.context.payload_limits)


def _item(answer: Submitted | GrnsError) -> dict[str, Any]:
    if isinstance(answer, GrnsError):
        return {"status": "problem", "problem": asdict(problem.of(answer))}
    return {"status": "created" if answer.created else "exists", "id": answer.id, "trace_id": answer.trace_id}
