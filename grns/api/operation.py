"""Bulk operations: changes to every task that matches a filter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import ConfigDict, Field
from starlette.responses import Response

from grns.api.access import Operator, Reader, RequestContext
from grns.api.answer import Answer
from grns.api.page import Cursor, PageOf, listed
from grns.api.request import Reason, ReasonBody, around, strict_fields
from grns.api.route import PREFIX, router
from grns.errors import InvalidInputError
from grns.operations import service as store
from grns.operations.model import OperationRequest, State, request
from grns.operations.service import Operation, Preview
from grns.outbox.events import place

routes = router("operations")

Number = Annotated[int, Path(ge=1, le=2**62, description="The operation's number.")]
Change = Callable[..., Awaitable[Operation]]


class CreateOperationRequest(OperationRequest):
    """What is to be done; with `dry_run` it is only said how many tasks that would be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dry_run: Annotated[bool, Field(strict=True)] = False


@routes.post(
    "/operations",
    response_model=Operation,
    status_code=201,
    responses={200: {"model": Preview, "description": "What it would find: nothing is done"}},
)
async def create_operation(
    request_context: Operator,
    fields: Annotated[
        dict[str, Any],
        strict_fields(
            CreateOperationRequest, lambda context: around(context.payload_limits), code="bad_operation"
        ),
    ],
) -> Response:
    """Create a bulk operation on all tasks that match a filter. With `dry_run`, only count them."""
    is_trial = fields.pop("dry_run", False)
    if not isinstance(is_trial, bool):
        raise InvalidInputError("bad_operation", "dry_run: it is true or false")
    wanted = request(**fields)
    if is_trial:
        async with request_context.reading() as database:
            return Answer(await store.preview(database, wanted, workspace=request_context.workspace))
    async with request_context.writing() as database:
        made = await store.create_operation(
            database, wanted, workspace=request_context.workspace, actor=request_context.actor
        )
    return Answer(shown(made), status_code=201, headers={"Location": f"{PREFIX}/operations/{made.id}"})


@routes.get("/operations", response_model=PageOf[Operation])
async def list_operations(
    request_context: Reader,
    state: Annotated[list[State] | None, Query(description="Only those that are there.")] = None,
    limit: Annotated[int, Query(ge=1, le=100, description="Rows at most.")] = 50,
    cursor: Cursor = None,
) -> Response:
    """List bulk operations, the latest first."""
    async with request_context.reading() as database:
        page = await store.list_operations(
            database,
            workspace=request_context.workspace,
            states=state,
            limit=limit,
            after=None if cursor is None else place(cursor),
        )
    return listed([shown(one) for one in page.rows], page.next_cursor)


@routes.get("/operations/{number}", response_model=Operation)
async def read_operation(request_context: Reader, number: Number) -> Response:
    """Return a bulk operation with its progress and outcome."""
    async with request_context.reading() as database:
        return Answer(
            shown(await store.read_operation(database, number, workspace=request_context.workspace))
        )


@routes.post("/operations/{number}/pause", response_model=Operation)
async def pause_operation(request_context: Operator, body: ReasonBody, number: Number) -> Response:
    """Pause a bulk operation."""
    return await _change(request_context, body, number, store.pause_operation)


@routes.post("/operations/{number}/resume", response_model=Operation)
async def resume_operation(request_context: Operator, body: ReasonBody, number: Number) -> Response:
    """Resume a bulk operation. After a failed canary, it continues with all other tasks."""
    return await _change(request_context, body, number, store.resume_operation)


@routes.post("/operations/{number}/cancel", response_model=Operation)
async def cancel_operation(request_context: Operator, body: ReasonBody, number: Number) -> Response:
    """Cancel a bulk operation. Tasks that it has moved stay moved."""
    return await _change(request_context, body, number, store.cancel_operation)


async def _change(request_context: RequestContext, body: Reason, number: int, change: Change) -> Answer:
    async with request_context.writing() as database:
        return Answer(
            shown(
                await change(
                    database,
                    number,
                    workspace=request_context.workspace,
                    actor=request_context.actor,
                    reason=body.reason,
                )
            )
        )


def shown(found: Operation) -> dict[str, Any]:
    return {**asdict(found), "outstanding": found.outstanding}
