"""Workflows: a list, and the picture of each, with what can be done to all of its tasks."""

from __future__ import annotations

from starlette.responses import Response

from grns.errors import InvalidInputError
from grns.web import graph
from grns.web.page_request import PageRequest, WebPages

pages = WebPages()

# Of workflows with more tasks, no picture is drawn.
_DRAWN = 500
_STATUSES = ("running", "succeeded", "failed", "cancelled")
_CHANGES = {"pause": "workflow_paused", "resume": "resumed", "cancel": "operation", "redrive": "operation"}


@pages.get("/workflows")
async def workflows(request: PageRequest) -> Response:
    """List the workflows."""
    status = request.query("status")
    status = status if status in _STATUSES else None
    page = await request.fetch("/workflows", cursor=request.query("cursor"), status=status)
    return await request.render(
        "workflows.html",
        rows=page["items"],
        next_cursor=page["next_cursor"],
        statuses=_STATUSES,
        chosen=status,
        is_any_running=any(row["status"] == "running" for row in page["items"]),
    )


@pages.get("/workflows/{workflow_id}")
async def workflow(request: PageRequest) -> Response:
    """Show a workflow: its counts, its picture, and its tasks."""
    path = f"/workflows/{request.name('workflow_id')}"
    found = await request.fetch(path)
    is_drawn = found["total"] <= _DRAWN and request.query("cursor") is None
    page = await request.fetch(
        f"{path}/tasks", cursor=request.query("cursor"), limit=_DRAWN if is_drawn else 50
    )
    now = await request.context.clock.now()
    return await request.render(
        "workflow.html",
        workflow=found,
        rows=page["items"],
        next_cursor=page["next_cursor"],
        graph=graph.draw(page["items"], now) if is_drawn else None,
        is_running=found["status"] == "running",
    )


@pages.post("/workflows/{workflow_id}/{change}")
async def change_workflow(request: PageRequest) -> Response:
    """Pause, resume, cancel or redrive a workflow."""
    workflow_id, change = request.name("workflow_id"), request.path_params["change"]
    if change not in _CHANGES:
        raise InvalidInputError("bad_reason", "pass pause, resume, cancel or redrive")
    path = f"/workflows/{workflow_id}"
    made = await request.change(f"{path}/{change}", {"reason": request.fields.text("reason")})
    place = path if change in ("pause", "resume") else f"/operations/{made['id']}"
    return request.redirect(place, notice=_CHANGES[change])
