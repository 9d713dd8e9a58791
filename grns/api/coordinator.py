"""Coordination: whether the daemons are there, what they did, and that they look now."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from grns.api.access import AdminOfAll, Reader, ReaderOfAll
from grns.api.answer import Answer
from grns.api.page import Cursor, Limit, PageOf, answer
from grns.api.route import router
from grns.maintenance.coordinator import (
    KINDS,
    CoordinatorStatus,
    Level,
    Recovery,
    read_coordinator,
    recover,
)
from grns.outbox import events as event
from grns.outbox.events import EventQuery, LogEvent

routes = router("installation")


@routes.get("/coordinator/status", response_model=CoordinatorStatus)
async def read_coordinator_status(request_context: ReaderOfAll) -> Response:
    """Return whether reaper and relay are there, and how many tasks and agents they see."""
    async with request_context.reading() as database:
        return Answer(await read_coordinator(database))


@routes.post("/coordinator/recover", response_model=Recovery)
async def recover_tasks(request_context: AdminOfAll) -> Response:
    """Put tasks back now whose lease is over, and queue those that are due, in all workspaces.

    The daemons do the same every second. Leases that are not over are left alone.
    """
    context = request_context.context
    return Answer(await recover(context.database, context.transport))


@routes.get("/coordinator/logs", response_model=PageOf[LogEvent])
async def list_coordination(
    request_context: Reader,
    level: Annotated[Level, Query(description="Of this level, and above.")] = "INFO",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List the events of the workspace that tell of coordination, the latest first.

    `ERROR`: tasks that died or failed, agents that are dead. `WARN`: leases that were over, retries, agents
    that are stale. `INFO`: also tasks that were given back, and agents that came and went.
    """
    wanted = EventQuery(request_context.workspace, KINDS[level], None)
    log = await request_context.context.tail.bounds()
    async with request_context.reading() as database:
        return answer(await event.list_events(database, wanted, log, limit=limit, after=cursor))
