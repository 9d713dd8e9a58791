"""Task types that pools publish."""

from __future__ import annotations

from starlette.responses import Response

from grns.api.access import Submitter
from grns.api.answer import Answer
from grns.api.route import router
from grns.tasks.published import TaskType, list_task_types

routes = router("tasks")


@routes.get("/task-types", response_model=list[TaskType])
async def list_published(request_context: Submitter) -> Response:
    """List the task types that pools publish, with the schemas of their payloads."""
    async with request_context.reading() as database:
        return Answer(await list_task_types(database, workspace=request_context.workspace))
