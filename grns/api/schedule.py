"""Schedules: create, list, pause, run, delete, and what was decided for them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from grns.api.access import Operator, Reader, Submitter
from grns.api.answer import Answer
from grns.api.page import Cursor, Limit, PageOf, answer
from grns.api.request import Body, around, strict_body
from grns.api.route import PREFIX, router
from grns.model.envelope import Instant
from grns.schedules import service as store
from grns.schedules.backfill import backfill
from grns.schedules.model import Backfill, Pruned, Schedule, ScheduleRun, ScheduleSpec
from grns.schedules.scheduler import run_now

routes = router("schedules")

ScheduleName = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,64}$", description="The schedule's name.")]


@dataclass(frozen=True, slots=True)
class NextTimes:
    """The next times of a schedule, in UTC."""

    times: list[datetime]


class PauseScheduleRequest(Body):
    """Why a schedule is paused."""

    reason: Annotated[str, Field(min_length=1, max_length=1000)] | None = None


class RunScheduleRequest(Body):
    """With `force`, a task is submitted even if the one before has not ended."""

    force: Annotated[bool, Field(strict=True)] = False


class PruneRequest(Body):
    """With `dry_run`, no schedule is deleted."""

    dry_run: Annotated[bool, Field(strict=True)] = False


class BackfillRequest(Body):
    """Times from `start` on, before `end`, at most 1,000; with `dry_run` they are only counted."""

    start: Instant
    end: Instant
    dry_run: Annotated[bool, Field(strict=True)] = False


@routes.post("/schedules", response_model=Schedule, status_code=201)
async def put_schedule(
    request_context: Submitter,
    body: Annotated[
        ScheduleSpec,
        strict_body(ScheduleSpec, lambda context: around(context.payload_limits), code="bad_schedule"),
    ],
) -> Response:
    """Create a schedule, or replace the one of its name."""
    async with request_context.writing() as database:
        made = await store.put(
            database,
            body,
            workspace=request_context.workspace,
            actor=request_context.actor,
            limits=request_context.context.payload_limits,
        )
    return Answer(made, status_code=201, headers={"Location": f"{PREFIX}/schedules/{made.name}"})


@routes.post("/schedules/prune", response_model=Pruned)
async def prune_schedules(
    request_context: Operator,
    body: Annotated[PruneRequest, strict_body(PruneRequest, code="bad_schedule")],
) -> Response:
    """Delete up to 1,000 schedules of your code that no live worker declares any more, and return them."""
    async with request_context.writing() as database:
        return Answer(
            await store.prune(
                database,
                workspace=request_context.workspace,
                actor=request_context.actor,
                is_trial=body.dry_run,
            ),
        )


@routes.get("/schedules", response_model=PageOf[Schedule])
async def list_schedules(request_context: Reader, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List schedules by name."""
    async with request_context.reading() as database:
        return answer(
            await store.list_schedules(
                database, workspace=request_context.workspace, limit=limit, after=cursor
            )
        )


@routes.get("/schedules/{schedule}", response_model=Schedule)
async def read_schedule(request_context: Reader, schedule: ScheduleName) -> Response:
    """Return a schedule."""
    async with request_context.reading() as database:
        return Answer(await store.read(database, schedule, workspace=request_context.workspace))


@routes.get("/schedules/{schedule}/next", response_model=NextTimes)
async def next_times(
    request_context: Reader,
    schedule: ScheduleName,
    count: Annotated[int, Query(ge=1, le=1000, description="How many times.")] = 10,
) -> Response:
    """Return the next times of a schedule."""
    async with request_context.reading() as database:
        found = await store.read(database, schedule, workspace=request_context.workspace)
    return Answer(NextTimes(found.next_times(count)))


@routes.get("/schedules/{schedule}/runs", response_model=PageOf[ScheduleRun])
async def list_schedule_runs(
    request_context: Reader, schedule: ScheduleName, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """List what was decided each time a schedule was due, the latest first."""
    async with request_context.reading() as database:
        await store.read(database, schedule, workspace=request_context.workspace)
        return answer(
            await store.list_runs(
                database, schedule, workspace=request_context.workspace, limit=limit, after=cursor
            )
        )


@routes.post("/schedules/{schedule}/pause", response_model=Schedule)
async def pause_schedule(
    request_context: Operator,
    body: Annotated[PauseScheduleRequest, strict_body(PauseScheduleRequest, code="bad_reason")],
    schedule: ScheduleName,
) -> Response:
    """Pause a schedule. What is due until it is resumed is not submitted, then or later."""
    async with request_context.writing() as database:
        return Answer(
            await store.pause(
                database,
                schedule,
                workspace=request_context.workspace,
                actor=request_context.actor,
                reason=body.reason,
            ),
        )


@routes.post("/schedules/{schedule}/run", response_model=ScheduleRun)
async def run_schedule(
    request_context: Operator,
    body: Annotated[RunScheduleRequest, strict_body(RunScheduleRequest, code="bad_schedule")],
    schedule: ScheduleName,
) -> Response:
    """Decide about a schedule now: submit its task, as `overlap` allows. Its next time stays."""
    async with request_context.writing() as database:
        return Answer(
            await run_now(
                database,
                request_context.context.transport,
                schedule,
                workspace=request_context.workspace,
                actor=request_context.actor,
                limits=request_context.context.payload_limits,
                is_forced=body.force,
            ),
        )


@routes.post("/schedules/{schedule}/backfill", response_model=Backfill)
async def backfill_schedule(
    request_context: Operator,
    body: Annotated[BackfillRequest, strict_body(BackfillRequest, code="bad_backfill")],
    schedule: ScheduleName,
) -> Response:
    """Submit a task for each time of a range that had none. With `dry_run`, only count them."""
    async with request_context.writing() as database:
        return Answer(
            await backfill(
                database,
                request_context.context.transport,
                schedule,
                body.start,
                body.end,
                workspace=request_context.workspace,
                actor=request_context.actor,
                limits=request_context.context.payload_limits,
                is_trial=body.dry_run,
            ),
        )


@routes.post("/schedules/{schedule}/resume", response_model=Schedule)
async def resume_schedule(request_context: Operator, schedule: ScheduleName) -> Response:
    """Resume a schedule from its next time on, and count its failures from zero."""
    async with request_context.writing() as database:
        return Answer(
            await store.resume(
                database, schedule, workspace=request_context.workspace, actor=request_context.actor
            ),
        )


@routes.delete("/schedules/{schedule}", response_model=Schedule)
async def delete_schedule(request_context: Operator, schedule: ScheduleName) -> Response:
    """Delete a schedule, and return it. Tasks that it has submitted stay."""
    async with request_context.writing() as database:
        found = await store.read(database, schedule, workspace=request_context.workspace)
        await store.delete(
            database, schedule, workspace=request_context.workspace, actor=request_context.actor
        )
        return Answer(found)
