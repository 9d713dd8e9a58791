"""Agents: the list with their health, and one agent with its tasks and what it is told."""

from __future__ import annotations

from starlette.responses import Response

from grns.model.agent import HEALTHS
from grns.web.filters import term
from grns.web.page_request import PageRequest, WebPages

pages = WebPages()

_ROWS = 50
_COLORS = {"healthy": "succeeded", "degraded": "retry_wait", "stale": "failed", "dead": "dead"}


@pages.get("/agents")
async def agents(request: PageRequest) -> Response:
    """List agents by name."""
    asked = {name: request.query(name) for name in ("agent_type", "health", "capability", "cursor")}
    page = await request.fetch("/agents", limit=_ROWS, **asked)
    return await request.render(
        "agents.html",
        rows=page["items"],
        next_cursor=page["next_cursor"],
        asked=asked,
        healths=HEALTHS,
        color=lambda health: _COLORS.get(health, "cancelled"),
    )


@pages.get("/agents/{name}")
async def agent(request: PageRequest) -> Response:
    """Show an agent and the tasks that it runs."""
    name = request.name("name")
    found = await request.fetch(f"/agents/{name}")
    return await request.render(
        "agent.html",
        agent=found,
        tasks=await request.fetch(f"/agents/{name}/tasks"),
        color=lambda health: _COLORS.get(health, "cancelled"),
        tasks_of=lambda agent_id: term("worker", agent_id),
    )


@pages.post("/agents/{name}/terminate")
async def terminate(request: PageRequest) -> Response:
    """Tell an agent to end."""
    name = request.name("name")
    body = {"graceful": "now" not in request.fields, "reason": request.fields.text("reason")}
    if life := request.fields.text("agent_id"):
        body["agent_id"] = life
    await request.change(f"/agents/{name}/terminate", body)
    return request.redirect(f"/agents/{name}", notice="told")


@pages.post("/agents/{name}/resume")
async def resume(request: PageRequest) -> Response:
    """Take back what an agent was told."""
    name = request.name("name")
    await request.change(f"/agents/{name}/resume", {})
    return request.redirect(f"/agents/{name}", notice="resumed")
