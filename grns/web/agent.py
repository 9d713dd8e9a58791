"""Agents: their list, one with its tasks, its mail and what it is told, and all mail."""

from __future__ import annotations

from starlette.responses import Response

from grns.model.agent import HEALTHS
from grns.web.filters import term
from grns.web.page_request import PageRequest, WebPages

_OPEN_MAIL = 20

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
        tasks=await request.fetch(f"/agents/{name}/tasks", status="running"),
        mail=await request.fetch("/mail", to=name, is_open="true", limit=_OPEN_MAIL),
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


@pages.post("/agents/{name}/mail")
async def send_mail(request: PageRequest) -> Response:
    """Send mail to an agent."""
    name, form = request.name("name"), request.fields
    payload = form.json("payload", request.context.api_context.payload_limits) or {}
    said = {"type": form.text("type"), "about": form.text("about"), "payload": payload, "to": name}
    await request.change("/mail", {field: value for field, value in said.items() if value is not None})
    return request.redirect(f"/agents/{name}", notice="sent")


@pages.get("/mail")
async def mail(request: PageRequest) -> Response:
    """List mail, oldest first: of a conversation, to an agent, or all."""
    asked = {name: request.query(name) for name in ("about", "to", "is_open", "cursor")}
    page = await request.fetch("/mail", limit=_ROWS, **asked)
    return await request.render("mail.html", rows=page["items"], next_cursor=page["next_cursor"], asked=asked)
