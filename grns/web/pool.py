"""Pools and workers: queued tasks by priority, live workers, and pausing pools."""

from __future__ import annotations

import string
from typing import Any

from starlette.responses import Response

from grns.api.in_process import ApiProblemError
from grns.errors import InvalidInputError, NotFoundError
from grns.web import alarms
from grns.web.filters import term
from grns.web.form import Form
from grns.web.page_request import PageRequest, WebPages

pages = WebPages()

_POOLS, _POOL_WORKERS, _WORKERS, _QUEUED = 100, 1000, 200, 100
_PRIORITIES = ("critical", "high", "normal", "background")
_PAUSE_SECONDS = {
    "15 minutes": 900, "1 hour": 3600, "4 hours": 4 * 3600, "1 day": 86_400, "until resumed": None
}  # fmt: skip
_NAME_CHARACTERS = sorted(f"{string.ascii_letters}{string.digits}_-")


@pages.get("/pools")
async def pools(request: PageRequest) -> Response:
    """List the pools."""
    page = await request.fetch("/pools", limit=_POOLS, cursor=request.query("cursor"))
    return await request.render(
        "pools.html",
        rows=page["items"],
        next_cursor=page["next_cursor"],
        alarms=alarms.pool_alarms(page["items"]),
        priorities=_PRIORITIES,
    )


@pages.get("/pools/{agent_type}")
async def pool(request: PageRequest) -> Response:
    """Show a pool with its queued tasks by priority, its workers and its pauses."""
    agent_type = request.name("agent_type")
    found = await _find_pool(request, agent_type)
    page = await request.fetch("/workers", limit=_POOL_WORKERS)
    pool_workers = [worker for worker in page["items"] if worker["agent_type"] == agent_type]
    return await request.render(
        "pool.html",
        pool=found,
        workers=pool_workers,
        follow_ups=(await request.fetch(f"/pools/{agent_type}/follow-ups"))["follow_ups"],
        task_types=sorted({name for worker in pool_workers for name in worker["task_types"]}),
        pause_times=list(_PAUSE_SECONDS),
        alarms=alarms.pool_alarms([found]),
        queued_filter=f"{term('status', 'queued')} {term('pool', agent_type)}",
        priorities=_PRIORITIES,
    )


async def _find_pool(request: PageRequest, agent_type: str) -> dict[str, Any]:
    """Return a pool from the list, which is ordered by name, by starting just before its name."""
    page = await request.fetch("/pools", limit=1, cursor=_cursor_before(agent_type))
    rows: list[dict[str, Any]] = page["items"]
    if not rows or rows[0]["agent_type"] != agent_type:
        raise NotFoundError(f"there is no pool {agent_type}: it has no worker, no queued task and no pause")
    return rows[0]


def _cursor_before(name: str) -> str | None:
    """Return the last possible name before a name, or None if there is none."""
    place = _NAME_CHARACTERS.index(name[-1])
    if place == 0:
        return name[:-1] or None
    return (name[:-1] + _NAME_CHARACTERS[place - 1]).ljust(64, _NAME_CHARACTERS[-1])


@pages.post("/pools/{agent_type}/{change}")
async def change_pool(request: PageRequest) -> Response:
    """Pause or resume a pool, or one task type of it."""
    agent_type, change = request.name("agent_type"), request.path_params["change"]
    if change not in ("pause", "resume"):
        raise InvalidInputError("bad_pause", "pass pause or resume")
    path = f"/pools/{agent_type}" if "stay" in request.fields else "/pools"
    try:
        await request.change(f"/pools/{agent_type}/{change}", _pause_body(request.fields, change))
    except (InvalidInputError, ApiProblemError) as error:
        if change == "resume" or path == "/pools":
            raise
        request.keep_form(error, path)
        return await pool(request)
    return request.redirect(path, notice=f"{change}d")


def _pause_body(form: Form, change: str) -> dict[str, Any]:
    body: dict[str, Any] = {"task_type": form.text("task_type")}
    if change == "pause":
        lasts = form.text("lasts") or "until resumed"
        if lasts not in _PAUSE_SECONDS:
            raise InvalidInputError("bad_until", "lasts: choose one of the times in the form")
        seconds = _PAUSE_SECONDS[lasts]
        body |= {"reason": form.text("reason"), "seconds": None if seconds is None else float(seconds)}
    return body


@pages.get("/workers")
async def workers(request: PageRequest) -> Response:
    """List the workers."""
    page = await request.fetch("/workers", limit=_WORKERS, cursor=request.query("cursor"))
    is_complete = page["next_cursor"] is None and request.query("cursor") is None
    queued: list[dict[str, Any]] = []
    # A part of the workers does not show which task types have no handler.
    if is_complete:
        queued = (await request.fetch("/tasks", filter=term("status", "queued"), limit=_QUEUED))["items"]
    return await request.render(
        "workers.html",
        rows=page["items"],
        next_cursor=page["next_cursor"],
        alarms=alarms.handler_alarms(queued, page["items"]),
        tasks_of=lambda agent_id: term("worker", agent_id),
    )
