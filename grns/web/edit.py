"""Changing a task that does not run: its priority, its time, its payload."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from grns.errors import InvalidInputError
from grns.model import duration
from grns.web.api_client import ApiRefusal
from grns.web.page import WebPages
from grns.web.page_request import PageRequest, name

pages = WebPages()


@pages.get("/tasks/{task_id}/edit")
async def edit_form(call: PageRequest) -> Response:
    """Ask what of a task is to be otherwise."""
    return await _shown(call, name(call.request.path_params["task_id"]))


async def _shown(call: PageRequest, task_id: str) -> Response:
    answered = await call.answer(f"/tasks/{task_id}")
    return await call.show("edit.html", task=answered.content, edition=answered.etag)


@pages.post("/tasks/{task_id}/edit")
async def edit_task(call: PageRequest) -> Response:
    """Change a task, if nobody else has meanwhile; perhaps have it run again with that."""
    task_id, form = name(call.request.path_params["task_id"]), call.form
    try:
        await call.act(f"/tasks/{task_id}", _change(call), method="PATCH", edition=form.text("edition"))
    except (InvalidInputError, ApiRefusal) as error:
        call.mend(error, f"/tasks/{task_id}/edit")
        return await _shown(call, task_id)
    if not form.is_set("redrive"):
        return call.go(f"/tasks/{task_id}", said="edited")
    answered = await call.act(f"/tasks/{task_id}/redrive")
    return call.go(f"/tasks/{task_id}", said="redriven" if answered["answer"] == "redriven" else "unchanged")


def _change(call: PageRequest) -> dict[str, Any]:
    form = call.form
    said: dict[str, Any] = {"reason": form.text("reason")}
    if (priority := form.whole("priority")) is not None:
        said["priority"] = priority
    if (delay := form.text("delay")) is not None:
        said["delay_seconds"] = _seconds(delay)
    if form.text("payload") is not None and form.text("payload") != form.text("payload_seen"):
        said["payload"] = form.document("payload", call.room.context.payload_limits)
    return said


def _seconds(text: str) -> float:
    found = duration.parse(text)
    if found is None:
        raise InvalidInputError("bad_form", "delay: write 30, 5m, 2h or 1d")
    return found
