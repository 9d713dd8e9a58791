"""What handlers record and ask for: the steps of a task, and signals to it."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, Field
from starlette.responses import Response

from grns.api.access import Operator, Reader
from grns.api.answer import Answer
from grns.api.page import Cursor, Limit, PageOf, answer
from grns.api.request import Body, strict_body
from grns.api.route import router
from grns.api.task import TaskId, one
from grns.tasks.steps import TaskStep, list_steps

routes = router("tasks")


class SignalRequest(Body):
    """A signal. The same `id` is sent once."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    value: Any = None
    id: UUID | None = None


class SignalResponse(BaseModel):
    """What became of it: `woken`, `kept` until the task asks for it, `repeated`; or `redriven`."""

    answer: str


@routes.post("/tasks/{task_id}/signals", response_model=SignalResponse)
async def signal_task(
    request_context: Operator,
    body: Annotated[SignalRequest, strict_body(SignalRequest, code="bad_signal")],
    task_id: TaskId,
) -> Response:
    """Send a signal to a task, whose handler asks for it now or later. The same `id` is sent once."""
    async with request_context.writing() as database:
        said = await request_context.client(database).signal(
            task_id, body.name, body.value, signal_id=body.id
        )
        return Answer({"answer": said})


class ResetRequest(Body):
    """From which step an ended task is run again."""

    to: Annotated[str, Field(min_length=1, max_length=300)]
    reason: Annotated[str, Field(max_length=1000)] | None = None


@routes.post("/tasks/{task_id}/reset", response_model=SignalResponse)
async def reset_task(
    request_context: Operator,
    body: Annotated[ResetRequest, strict_body(ResetRequest, code="bad_reset")],
    task_id: TaskId,
) -> Response:
    """Run an ended task again from one of its steps: that step, and those after it, are forgotten."""
    async with request_context.writing() as database:
        said = await request_context.client(database).reset(task_id, to=body.to, reason=body.reason)
        return Answer({"answer": said})


@routes.get("/tasks/{task_id}/steps", response_model=PageOf[TaskStep])
async def list_task_steps(
    request_context: Reader, task_id: TaskId, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """List the steps that the attempts of a task have recorded, in order."""
    async with request_context.reading() as database:
        page = await list_steps(
            database, task_id, workspace=request_context.workspace, limit=limit, after=cursor
        )
        if not page.rows:
            await one(request_context, database, task_id)
    return answer(page)
