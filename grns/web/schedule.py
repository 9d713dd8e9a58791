"""Schedules: a list with what was decided lately, and the next times of each."""

from __future__ import annotations

from starlette.responses import Response

from grns.errors import InvalidInputError
from grns.web.page_request import PageRequest, WebPages

pages = WebPages()

_NEXT, _RUNS, _DOTS, _ROWS = 10, 50, 20, 25


@pages.get("/schedules")
async def schedules(request: PageRequest) -> Response:
    """List the schedules."""
    page = await request.fetch("/schedules", limit=_ROWS, cursor=request.query("cursor"))
    runs = {}
    for one in page["items"]:
        latest = await request.fetch(f"/schedules/{one['name']}/runs", limit=_DOTS)
        runs[one["name"]] = latest["items"][::-1]
    return await request.render(
        "schedules.html", rows=page["items"], runs=runs, next_cursor=page["next_cursor"]
    )


@pages.get("/schedules/{schedule}")
async def schedule(request: PageRequest) -> Response:
    """Show a schedule: its next times, and what was decided each time that it was due."""
    path = f"/schedules/{request.name('schedule')}"
    found = await request.fetch(path)
    times = (await request.fetch(f"{path}/next", count=_NEXT))["times"]
    page = await request.fetch(f"{path}/runs", limit=_RUNS, cursor=request.query("cursor"))
    return await request.render(
        "schedule.html", schedule=found, times=times, rows=page["items"], next_cursor=page["next_cursor"]
    )


@pages.post("/schedules/{schedule}/{change}")
async def change_schedule(request: PageRequest) -> Response:
    """Pause, resume or run a schedule."""
    name, change = request.name("schedule"), request.path_params["change"]
    path = f"/schedules/{name}"
    if change == "run":
        made = await request.change(f"{path}/run", {"force": "force" in request.fields})
        return request.redirect(path, notice=f"run_{made['outcome']}")
    if change == "pause":
        await request.change(f"{path}/pause", {"reason": request.fields.text("reason")})
        return request.redirect(path, notice="schedule_paused")
    if change != "resume":
        raise InvalidInputError("bad_reason", "pass pause, resume or run")
    await request.change(f"{path}/resume")
    return request.redirect(path, notice="resumed")
