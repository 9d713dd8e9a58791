"""Pools: what waits in each, who works there, and pausing them."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from grns.errors import InvalidInputError, NotFoundError
from grns.web import alarm
from grns.web.api_client import ApiRefusal
from grns.web.form import Form
from grns.web.page import WebPages
from grns.web.page_request import PageRequest, name
from grns.web.terms import term

pages = WebPages()

_LIMIT, _WORKERS = 100, 1000
# By priority.
_LANES = ("critical", "high", "normal", "background")
_LASTS = {
    "15 minutes": 900, "1 hour": 3600, "4 hours": 4 * 3600, "1 day": 86_400, "until resumed": None
}  # fmt: skip


@pages.get("/pools")
async def pools(call: PageRequest) -> Response:
    """List the pools."""
    page = await call.ask("/pools", limit=_LIMIT, cursor=call.query("cursor"))
    return await call.show(
        "pools.html",
        rows=page["items"],
        next_cursor=page["next_cursor"],
        alarms=alarm.of_pools(page["items"]),
        lanes=_LANES,
    )


@pages.get("/pools/{agent_type}")
async def pool(call: PageRequest) -> Response:
    """Show a pool: its lanes, its workers, its pauses."""
    return await _shown(call, name(call.request.path_params["agent_type"]))


async def _shown(call: PageRequest, agent_type: str) -> Response:
    found = await _pool(call, agent_type)
    every = (await call.ask("/workers", limit=_WORKERS))["items"]
    ours = [worker for worker in every if worker["agent_type"] == agent_type]
    return await call.show(
        "pool.html",
        pool=found,
        workers=ours,
        task_types=sorted({kind for worker in ours for kind in worker["task_types"]}),
        lasts=list(_LASTS),
        alarms=alarm.of_pools([found]),
        agent=term("pool", agent_type),
        lanes=_LANES,
    )


async def _pool(call: PageRequest, agent_type: str) -> dict[str, Any]:
    """Return a pool: they come in the order of their names, and the one behind all before it is this one."""
    page = await call.ask("/pools", limit=1, cursor=_before(agent_type))
    found: list[dict[str, Any]] = [one for one in page["items"] if one["agent_type"] == agent_type]
    if not found:
        raise NotFoundError(f"there is no pool {agent_type}: it has no worker, no queued task and no pause")
    return found[0]


def _before(agent_type: str) -> str | None:
    """Return a name behind which no other one comes before this one, None of the very first there can be."""
    last = agent_type[-1]
    allowed = sorted("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
    place = allowed.index(last)
    if place == 0:
        return agent_type[:-1] or None
    return (agent_type[:-1] + allowed[place - 1]).ljust(64, allowed[-1])


@pages.post("/pools/{agent_type}/{change}")
async def change_pool(call: PageRequest) -> Response:
    """Pause a pool, or one task type of it, or let it go on."""
    agent_type, change = name(call.request.path_params["agent_type"]), call.request.path_params["change"]
    if change not in ("pause", "resume"):
        raise InvalidInputError("bad_pause", "a pool is paused or resumed")
    path = f"/pools/{agent_type}" if call.form.is_set("stay") else "/pools"
    try:
        await call.act(f"/pools/{agent_type}/{change}", _order(call.form, change))
    except (InvalidInputError, ApiRefusal) as error:
        if change == "resume" or path == "/pools":
            raise
        call.mend(error, path)
        return await _shown(call, agent_type)
    return call.go(path, said=f"{change}d")


def _order(form: Form, change: str) -> dict[str, Any]:
    said: dict[str, Any] = {"task_type": form.text("task_type")}
    if change == "pause":
        lasts = form.text("lasts") or "until resumed"
        if lasts not in _LASTS:
            raise InvalidInputError("bad_until", "lasts: it is one of the times that the form names")
        seconds = _LASTS[lasts]
        said |= {"reason": form.text("reason"), "seconds": None if seconds is None else float(seconds)}
    return said
