"""Pools: who works in each, what waits for it, and whether it is paused."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, Field
from starlette.responses import Response

from grns.api.access import Operator, Reader
from grns.api.answer import Answer
from grns.api.context import ApiContext
from grns.api.page import Cursor, Limit, PageOf, answer, name_in
from grns.api.request import Body, Moment, Reason, strict_body
from grns.api.route import router
from grns.errors import ConflictError, InvalidInputError
from grns.model.json import Limits
from grns.model.submission import Token
from grns.tasks import pools as store
from grns.tasks.follow_ups import FollowUpState, WantedFollowUp
from grns.tasks.pauses import Pause
from grns.tasks.pools import PoolState
from grns.tasks.quotas import PoolQuota, put_quota
from grns.worker import registry
from grns.worker.registry import WorkerState

routes = router("pools")

_LONGEST_SECONDS = 366 * 86_400.0
AgentType = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,64}$", description="The pool's agent type.")]


class PauseRequest(Reason):
    """A pause of a pool or of one task type: until a time, for some seconds, or until it is resumed."""

    task_type: Token | None = None
    until: Moment | None = None
    seconds: Annotated[float, Field(gt=0, le=_LONGEST_SECONDS, allow_inf_nan=False, strict=True)] | None = (
        None
    )


class QuotaRequest(Body):
    """How many tasks of a pool may be queued; null: any number."""

    max_queued: Annotated[int, Field(ge=1, le=100_000, strict=True)] | None


class FollowUpsRequest(Body):
    """The follow-ups of a pool, instead of those that it has."""

    follow_ups: Annotated[list[WantedFollowUp], Field(max_length=1000)]


class FollowUpsResponse(BaseModel):
    """The follow-ups of a pool, by the type that they follow."""

    follow_ups: list[FollowUpState]


class ResumeRequest(Body):
    """The pool or task type to resume."""

    task_type: Token | None = None


def _follow_up_bodies(_context: ApiContext) -> Limits:
    return Limits(document_bytes=1024 * 1024, nodes=100_000)


@routes.get("/pools", response_model=PageOf[PoolState])
async def list_pools(request_context: Reader, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List pools with workers, queued tasks or a pause."""
    async with request_context.reading() as database:
        return answer(
            await store.list_pools(
                database, workspace=request_context.workspace, limit=limit, after=name_in(cursor)
            )
        )


@routes.get("/pools/{agent_type}/follow-ups", response_model=FollowUpsResponse)
async def list_pool_follow_ups(request_context: Reader, agent_type: AgentType) -> Response:
    """List what grns submits when tasks of a pool have ended."""
    async with request_context.reading() as database:
        found = await request_context.client(database).follow_ups.list(agent_type)
    return Answer({"follow_ups": found})


@routes.put("/pools/{agent_type}/follow-ups", response_model=FollowUpsResponse)
async def put_pool_follow_ups(
    request_context: Operator,
    body: Annotated[FollowUpsRequest, strict_body(FollowUpsRequest, _follow_up_bodies, code="bad_follow_up")],
    agent_type: AgentType,
) -> Response:
    """Declare what grns submits when tasks of a pool have ended, instead of what is declared now.

    For pools whose workers use HTTP: those of Python declare what stands beside their handlers.
    """
    async with request_context.writing() as database:
        found = await request_context.client(database).follow_ups.put(agent_type, body.follow_ups)
    return Answer({"follow_ups": found})


@routes.put("/pools/{agent_type}/quota", response_model=PoolQuota | None)
async def put_pool_quota(
    request_context: Operator,
    body: Annotated[QuotaRequest, strict_body(QuotaRequest, code="bad_quota")],
    agent_type: AgentType,
) -> Response:
    """Set how many tasks of a pool may be queued; null takes the quota away. More are answered with 429."""
    async with request_context.writing() as database:
        return Answer(
            await put_quota(
                database,
                agent_type,
                body.max_queued,
                workspace=request_context.workspace,
                actor=request_context.actor,
            )
        )


@routes.post("/pools/{agent_type}/pause", response_model=Pause)
async def pause_pool(
    request_context: Operator,
    body: Annotated[PauseRequest, strict_body(PauseRequest, code="bad_pause")],
    agent_type: AgentType,
) -> Response:
    """Pause a pool, or one task type. Running tasks continue, queued tasks wait."""
    if body.until is not None and body.seconds is not None:
        raise InvalidInputError("bad_until", "seconds: there is a time already")
    async with request_context.writing() as database:
        return Answer(
            await request_context.pauses(database).pause(
                agent_type,
                body.task_type,
                actor=request_context.actor,
                reason=body.reason,
                until=body.until or body.seconds,
            )
        )


@routes.post("/pools/{agent_type}/resume", response_model=Pause)
async def resume_pool(
    request_context: Operator,
    body: Annotated[ResumeRequest, strict_body(ResumeRequest, code="bad_pause")],
    agent_type: AgentType,
) -> Response:
    """Resume a pool or one task type, and return the pause. Other pauses stay."""
    async with request_context.writing() as database:
        ended = await request_context.pauses(database).resume(
            agent_type, body.task_type, actor=request_context.actor
        )
    if ended is None:
        raise ConflictError(f"{body.task_type or 'all'} of {agent_type} is not paused")
    return Answer(ended)


@routes.get("/workers", response_model=PageOf[WorkerState])
async def list_workers(request_context: Reader, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List workers by pool."""
    async with request_context.reading() as database:
        return answer(
            await registry.list_workers(
                database, workspace=request_context.workspace, limit=limit, after=cursor
            )
        )
