"""Workflows: create, extend, seal, list, show, pause, cancel, redrive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel
from starlette.responses import Response

from grns.api.access import Operator, Reader, RequestContext, Submitter
from grns.api.answer import Answer
from grns.api.operation import shown
from grns.api.page import Cursor, Limit, PageOf, answer
from grns.api.request import Reason, ReasonBody, strict_body
from grns.api.route import PREFIX, router
from grns.errors import ConflictError
from grns.model.json import Limits
from grns.operations.service import Operation
from grns.operations.workflows import cancel_workflow, redrive_workflow
from grns.tasks import workflows as store
from grns.tasks.announce import announce
from grns.tasks.submit import Submissions
from grns.tasks.workflow_plan import (
    PlannedWorkflow,
    WorkflowExtension,
    WorkflowPlan,
    planned,
    planned_extension,
)
from grns.tasks.workflows import WorkflowMember, WorkflowState, WorkflowStatus

routes = router("workflows")

WorkflowId = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,64}$", description="The workflow's id.")]
_LIMITS = Limits(document_bytes=4 * 1024 * 1024, nodes=500_000)


class CreatedWorkflow(BaseModel):
    """A workflow that was created or extended, and the ids of the new tasks by name."""

    id: str
    tasks: dict[str, str]


@routes.post("/workflows", response_model=CreatedWorkflow, status_code=201)
async def create_workflow(
    request_context: Submitter,
    body: Annotated[WorkflowPlan, strict_body(WorkflowPlan, _LIMITS, code="bad_submission")],
) -> Response:
    """Create tasks that need each other, all or none. The body is at most 4 MiB."""
    plan = planned(
        body,
        workspace=request_context.workspace,
        trace_id=request_context.trace_id,
        limits=request_context.context.payload_limits,
    )
    return await _submitted(request_context, plan)


@routes.post("/workflows/{workflow_id}/tasks", response_model=CreatedWorkflow, status_code=201)
async def extend_workflow(
    request_context: Submitter,
    body: Annotated[WorkflowExtension, strict_body(WorkflowExtension, _LIMITS, code="bad_submission")],
    workflow_id: WorkflowId,
) -> Response:
    """Add tasks to an open workflow, all or none. The body is at most 4 MiB."""
    plan = planned_extension(
        body,
        workflow_id,
        workspace=request_context.workspace,
        trace_id=None,
        limits=request_context.context.payload_limits,
    )
    return await _submitted(request_context, plan)


async def _submitted(request_context: RequestContext, plan: PlannedWorkflow) -> Answer:
    async with request_context.writing() as database:
        submissions = Submissions(database, batch_limit=len(plan.tasks), actor=request_context.actor)
        for made in await submissions.submit_workflow(plan.tasks, plan.workflow):
            if isinstance(made, ConflictError):
                raise made
    await announce(request_context.context.transport, plan.tasks)
    ids = {name: task_id for task_id, name in plan.workflow.names.items()}
    location = {"Location": f"{PREFIX}/workflows/{plan.workflow.id}"}
    return Answer({"id": plan.workflow.id, "tasks": ids}, status_code=201, headers=location)


@routes.post("/workflows/{workflow_id}/seal", response_model=WorkflowState)
async def seal_workflow(request_context: Submitter, workflow_id: WorkflowId) -> Response:
    """Seal an open workflow: it takes no more tasks, and ends once those that it has have ended."""
    async with request_context.writing() as database:
        return Answer(
            await store.seal(
                database,
                request_context.context.transport,
                workflow_id,
                workspace=request_context.workspace,
                actor=request_context.actor,
            )
        )


@routes.get("/workflows", response_model=PageOf[WorkflowState])
async def list_workflows(
    request_context: Reader,
    status: Annotated[WorkflowStatus | None, Query(description="Only those of this status.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List workflows, the latest first."""
    async with request_context.reading() as database:
        return answer(
            await store.list_workflows(
                database, workspace=request_context.workspace, status=status, limit=limit, after=cursor
            )
        )


@routes.get("/workflows/{workflow_id}", response_model=WorkflowState)
async def read_workflow(request_context: Reader, workflow_id: WorkflowId) -> Response:
    """Return a workflow: its status, and how many of its tasks have ended how."""
    async with request_context.reading() as database:
        return Answer(await store.read(database, workflow_id, workspace=request_context.workspace))


@routes.get("/workflows/{workflow_id}/tasks", response_model=PageOf[WorkflowMember])
async def list_workflow_tasks(
    request_context: Reader, workflow_id: WorkflowId, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """List the tasks of a workflow, its last ones too, and what each still waits for."""
    async with request_context.reading() as database:
        await store.read(database, workflow_id, workspace=request_context.workspace)
        return answer(
            await store.members(
                database, workflow_id, workspace=request_context.workspace, limit=limit, after=cursor
            )
        )


@routes.post("/workflows/{workflow_id}/pause", response_model=WorkflowState)
async def pause_workflow(request_context: Operator, body: ReasonBody, workflow_id: WorkflowId) -> Response:
    """Pause a workflow: no task of it that waits for others is queued until it is resumed."""
    return Answer(await _change(request_context, body, workflow_id, store.pause))


@routes.post("/workflows/{workflow_id}/resume", response_model=WorkflowState)
async def resume_workflow(request_context: Operator, body: ReasonBody, workflow_id: WorkflowId) -> Response:
    """Resume a workflow."""
    return Answer(await _change(request_context, body, workflow_id, store.resume))


@routes.post("/workflows/{workflow_id}/cancel", response_model=Operation, status_code=201)
async def cancel_workflow_tasks(
    request_context: Operator, body: ReasonBody, workflow_id: WorkflowId
) -> Response:
    """Cancel the tasks of a workflow that have not ended. Its last tasks run after that."""
    return _created(await _change(request_context, body, workflow_id, cancel_workflow))


@routes.post("/workflows/{workflow_id}/redrive", response_model=Operation, status_code=201)
async def redrive_workflow_tasks(
    request_context: Operator, body: ReasonBody, workflow_id: WorkflowId
) -> Response:
    """Run the tasks of a workflow again that have not succeeded, each after those that it needs."""
    return _created(await _change(request_context, body, workflow_id, redrive_workflow))


async def _change(
    request_context: RequestContext, body: Reason, workflow_id: str, change: Callable[..., Awaitable[Any]]
) -> Any:
    async with request_context.writing() as database:
        return await change(
            database,
            request_context.context.transport,
            workflow_id,
            workspace=request_context.workspace,
            actor=request_context.actor,
            reason=body.reason,
        )


def _created(made: Operation) -> Answer:
    return Answer(shown(made), status_code=201, headers={"Location": f"{PREFIX}/operations/{made.id}"})
