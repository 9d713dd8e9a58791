"""Limits: create, list, pause, delete, and how many tasks each of their keys has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Path
from pydantic import Field
from starlette.responses import Response

from grns.api.access import Operator, Reader
from grns.api.answer import Answer
from grns.api.page import Cursor, Limit, PageOf, answer
from grns.api.request import Body, strict_body
from grns.api.route import PREFIX, router
from grns.limits import service as store
from grns.limits.model import LimitKey, LimitSpec, TaskLimit

routes = router("limits")

LimitName = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,64}$", description="The limit's name.")]


@dataclass(frozen=True, slots=True)
class LimitKeys:
    """The keys of a limit that have tasks, those with the most waiting first."""

    items: list[LimitKey]


class LimitKeySpec(Body):
    """Numbers of one key; with `is_default`, none of its own."""

    key: Annotated[str, Field(min_length=1, max_length=128)]
    max_tasks: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] | None = None
    weight: Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)] = 1.0
    is_default: bool = False


class PauseLimitRequest(Body):
    """Why a limit is paused."""

    reason: Annotated[str, Field(min_length=1, max_length=1000)] | None = None


@routes.post("/limits", response_model=TaskLimit, status_code=201)
async def put_limit(
    request_context: Operator, body: Annotated[LimitSpec, strict_body(LimitSpec, code="bad_limit")]
) -> Response:
    """Create a limit, or replace the one of its name, and set which tasks of a pool fall under it."""
    async with request_context.writing() as database:
        made = await store.put(
            database, body, workspace=request_context.workspace, actor=request_context.actor
        )
    return Answer(made, status_code=201, headers={"Location": f"{PREFIX}/limits/{made.name}"})


@routes.get("/limits", response_model=PageOf[TaskLimit])
async def list_limits(request_context: Reader, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List limits by name."""
    async with request_context.reading() as database:
        return answer(
            await store.list_limits(database, workspace=request_context.workspace, limit=limit, after=cursor)
        )


@routes.get("/limits/{name}", response_model=TaskLimit)
async def read_limit(request_context: Reader, name: LimitName) -> Response:
    """Return a limit."""
    async with request_context.reading() as database:
        return Answer(await store.read(database, name, workspace=request_context.workspace))


@routes.get("/limits/{name}/keys", response_model=LimitKeys)
async def list_limit_keys(request_context: Reader, name: LimitName, limit: Limit = 50) -> Response:
    """List the keys of a limit that have tasks, those with the most waiting first."""
    async with request_context.reading() as database:
        await store.read(database, name, workspace=request_context.workspace)
        return Answer(
            LimitKeys(await store.list_keys(database, name, workspace=request_context.workspace, limit=limit))
        )


@routes.put("/limits/{name}/keys", response_model=TaskLimit)
async def put_limit_key(
    request_context: Operator,
    body: Annotated[LimitKeySpec, strict_body(LimitKeySpec, code="bad_limit")],
    name: LimitName,
) -> Response:
    """Give one key of a limit numbers of its own; with `is_default`, take them back."""
    async with request_context.writing() as database:
        if body.is_default:
            found = await store.delete_key(
                database, name, body.key, workspace=request_context.workspace, actor=request_context.actor
            )
        else:
            found = await store.put_key(
                database,
                name,
                body.key,
                max_tasks=body.max_tasks,
                weight=body.weight,
                workspace=request_context.workspace,
                actor=request_context.actor,
            )
        return Answer(found)


@routes.post("/limits/{name}/pause", response_model=TaskLimit)
async def pause_limit(
    request_context: Operator,
    body: Annotated[PauseLimitRequest, strict_body(PauseLimitRequest, code="bad_reason")],
    name: LimitName,
) -> Response:
    """Pause a limit: none of its tasks is queued until it is resumed. Those that are queued run."""
    async with request_context.writing() as database:
        return Answer(
            await store.pause(
                database,
                name,
                workspace=request_context.workspace,
                actor=request_context.actor,
                reason=body.reason,
            )
        )


@routes.post("/limits/{name}/resume", response_model=TaskLimit)
async def resume_limit(request_context: Operator, name: LimitName) -> Response:
    """Resume a limit."""
    async with request_context.writing() as database:
        return Answer(
            await store.resume(
                database, name, workspace=request_context.workspace, actor=request_context.actor
            )
        )


@routes.delete("/limits/{name}", response_model=TaskLimit)
async def delete_limit(request_context: Operator, name: LimitName) -> Response:
    """Delete a limit for all pools, and return it. Tasks that wait for room in it alone are queued."""
    async with request_context.writing() as database:
        return Answer(
            await store.delete(
                database, name, workspace=request_context.workspace, actor=request_context.actor
            )
        )
