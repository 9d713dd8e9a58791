"""What tasks have used: of one task, and summed."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel
from starlette.responses import Response

from grns.api.access import Reader
from grns.api.answer import Answer
from grns.api.route import router
from grns.api.task import TaskId, one
from grns.model.usage import UsageItem, UsageKey, UsageSum

routes = router("usage")


class TaskUsage(BaseModel):
    """What the attempts of a task have used, in order."""

    items: list[UsageItem]


class UsageSums(BaseModel):
    """What was used, the latest days first, and then what costs most. `cost` is in US dollars."""

    items: list[UsageSum]


@routes.get("/usage", response_model=UsageSums)
async def sum_usage(
    request_context: Reader,
    by: Annotated[list[UsageKey] | None, Query(description="By what to sum: some of them; the day.")] = None,
    since: Annotated[
        date | None, Query(description="The first day, in UTC; 30 days before the last.")
    ] = None,
    until: Annotated[date | None, Query(description="The last day; today.")] = None,
) -> Response:
    """Sum what tasks have used: tokens, time and money, by day, pool, task type and model."""
    async with request_context.reading() as database:
        usage = request_context.client(database).usage
        rows = await usage.sum(by=["day"] if by is None else by, since=since, until=until)
    return Answer({"items": rows})


@routes.get("/tasks/{task_id}/usage", response_model=TaskUsage)
async def list_usage(request_context: Reader, task_id: TaskId) -> Response:
    """Return what the attempts of a task have used, also those that have failed."""
    async with request_context.reading() as database:
        rows = await request_context.client(database).usage.of(task_id)
        if not rows:
            await one(request_context, database, task_id)
    return Answer({"items": rows})
