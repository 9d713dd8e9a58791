"""Counts: how many tasks are where, and what happens in each minute. None of it reads a task."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel
from starlette.responses import Response

from grns.api.access import Reader
from grns.api.answer import Answer
from grns.api.request import Moment
from grns.api.route import router
from grns.dead_letters import listing
from grns.errors import InvalidInputError
from grns.stats.counts import StepCounts, count_states, read_minutes

routes = router("counts")

_STEP_SECONDS = 60
_LONGEST_STEP_SECONDS = 366 * 86_400


class CountsResponse(BaseModel):
    """Task counts by status, about half a second old."""

    states: dict[str, int]
    total: int


class Steps(BaseModel):
    """Counts between two times. Empty steps are left out."""

    items: list[StepCounts]
    since: datetime
    until: datetime
    step_seconds: int


@routes.get("/counts", response_model=CountsResponse)
async def count_tasks(request_context: Reader) -> Response:
    """Count tasks by status."""
    async with request_context.reading() as database:
        states = await count_states(database, workspace=request_context.workspace)
    return Answer({"states": states, "total": sum(states.values())})


@routes.get("/minutes", response_model=Steps)
async def list_minutes(
    request_context: Reader,
    since: Annotated[Moment | None, Query(description="From this time on; an hour before the end.")] = None,
    until: Annotated[Moment | None, Query(description="Up to this time; now.")] = None,
    step_seconds: Annotated[int, Query(ge=60, le=_LONGEST_STEP_SECONDS)] = _STEP_SECONDS,
    task_type: Annotated[str | None, Query(pattern="^[A-Za-z0-9_-]{1,64}$")] = None,
) -> Response:
    """Return counts per minute, or per longer step, between two times."""
    async with request_context.reading() as database:
        end = until or await listing.now(database)
        start = since or end - timedelta(hours=1)
        if start >= end:
            raise InvalidInputError("bad_stretch", "nothing lies there: it has to begin before it ends")
        rows = await read_minutes(
            database,
            workspace=request_context.workspace,
            since=start,
            until=end,
            step_seconds=step_seconds,
            task_type=task_type,
        )
    return Answer({"items": rows, "since": start, "until": end, "step_seconds": step_seconds})
