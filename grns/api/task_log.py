"""The log of a task."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel
from starlette.responses import Response

from grns.api.access import Reader
from grns.api.answer import Answer
from grns.api.route import router
from grns.api.task import TaskId
from grns.diagnose.task_log import MOST_LINES, read_task_log
from grns.model.log_line import Level, TaskLogLine

routes = router("tasks")


class TaskLog(BaseModel):
    """The latest lines of a task's log, in order."""

    items: list[TaskLogLine]


@routes.get("/tasks/{task_id}/logs", response_model=TaskLog)
async def read_log(
    request_context: Reader,
    task_id: TaskId,
    level: Annotated[Level, Query(description="The lowest level.")] = "DEBUG",
    limit: Annotated[int, Query(ge=1, le=MOST_LINES)] = 200,
) -> Response:
    """Return the latest lines of a task's log, in order: what became of it, and what its handlers logged."""
    async with request_context.reading() as database:
        lines = await read_task_log(
            database, task_id, workspace=request_context.workspace, level=level, limit=limit
        )
    return Answer({"items": lines})
