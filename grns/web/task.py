"""One task: its status and the reason for it, its attempts and events, and the actions on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from grns.api.access import RequestContext
from grns.api.blob import download
from grns.api.in_process import ApiProblemError
from grns.errors import InvalidInputError
from grns.model import duration
from grns.model.blob import blobs_in, digest_of
from grns.model.envelope import SCHEMA_VERSION
from grns.model.task import REDRIVABLE, TERMINAL, TaskStatus
from grns.web.event import EventStreamResponse
from grns.web.filters import term
from grns.web.formatting import instant
from grns.web.page_request import PageRequest, WebPages

pages = WebPages()

_CHANGES = frozenset({"cancel", "redrive", "discard"})
_NOTICES = frozenset({"cancelled", "requested", "redriven", "discarded"})
_EDITABLE = frozenset(TaskStatus) - {TaskStatus.RUNNING, TaskStatus.SUCCEEDED}
_FAILURES = frozenset({"evt.task.retry_scheduled", "evt.task.failed", "evt.task.dead"})
_TIMELINE_WIDTH, _LEAST_WIDTH = 1000.0, 2.0
_ATTEMPTS, _EVENTS, _STEPS, _MAIL, _LINES = 50, 200, 100, 20, 200


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A part of a timeline that is 1000 wide."""

    start: float
    width: float


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One attempt of the timeline, with its wait and run in seconds, and its error."""

    attempt: Mapping[str, Any]
    wait_seconds: float | None
    run_seconds: float | None
    error: Mapping[str, Any] | None
    wait: TimelineBar | None
    run: TimelineBar


@pages.get("/tasks/{task_id}")
async def task(request: PageRequest) -> Response:
    """Show a task."""
    path = _path(request)
    response = await request.fetch_response(path)
    found, status = response.content, TaskStatus(response.content["status"])
    attempts = (await request.fetch(f"{path}/attempts"))["items"]
    page = await request.fetch(f"{path}/events", limit=_EVENTS, cursor=request.query("cursor"))
    events = page["items"]
    steps = (
        await request.fetch(f"{path}/steps", limit=_STEPS) if attempts else {"items": [], "next_cursor": None}
    )
    now = (await request.context.clock.now()).timestamp()
    return await request.render(
        "task.html",
        task=found,
        usage=(await request.fetch(f"{path}/usage"))["items"] if attempts else [],
        blobs=blobs_in([found["result"], found["checkpoint_data"], found["payload"]]),
        mail=await request.fetch("/mail", about=found["id"], limit=_MAIL),
        lines=[
            line
            for line in (await request.fetch(f"{path}/logs", limit=_LINES))["items"]
            if line["source"] == "handler"
        ],
        steps=steps["items"],
        has_more_steps=steps["next_cursor"] is not None,
        explanation=None if request.is_refresh else await request.fetch(f"{path}/explain"),
        timeline=timeline_rows(found, attempts[-_ATTEMPTS:], events, now),
        left_out=max(0, len(attempts) - _ATTEMPTS),
        events=events,
        next_cursor=page["next_cursor"],
        envelopes={event["message_id"]: _envelope(event) for event in events},
        can_cancel=status not in TERMINAL,
        can_redrive=status in REDRIVABLE,
        can_discard=status in REDRIVABLE and found["discarded_at"] is None,
        can_edit=status in _EDITABLE,
        has_ended=status in TERMINAL,
        trace=term("trace", found["trace_id"]),
        creator=term("creator", found["created_by"] or ""),
    )


@pages.get("/blobs/{blob_id}")
async def blob(request: PageRequest) -> Response:
    """Download a blob."""
    request.require("read")
    blob_id = f"sha256-{digest_of(request.name('blob_id'))}"
    principal = request.user.principal
    context = RequestContext(request.context.api_context, principal, request.workspace)
    context.enter(request.workspace)
    return await download(context, blob_id, request.headers.get("range"))


@pages.get("/tasks/{task_id}/stream")
async def stream_task(request: PageRequest) -> Response:
    """Stream what a task streams."""
    return EventStreamResponse(request, f"{_path(request)}/stream", {})


@pages.get("/tasks/{task_id}/edit")
async def edit_form(request: PageRequest) -> Response:
    """Show the form for changing a task."""
    response = await request.fetch_response(_path(request))
    return await request.render("edit.html", task=response.content, etag=response.etag)


@pages.post("/tasks/{task_id}/edit")
async def edit_task(request: PageRequest) -> Response:
    """Change a task, unless it has changed meanwhile, and redrive it if asked to."""
    path, form = _path(request), request.fields
    try:
        await request.change(path, _changes(request), method="PATCH", etag=form.text("etag"))
    except (InvalidInputError, ApiProblemError) as error:
        request.keep_form(error, f"{path}/edit")
        return await edit_form(request)
    if "redrive" not in form:
        return request.redirect(path, notice="edited")
    answer = (await request.change(f"{path}/redrive"))["answer"]
    return request.redirect(path, notice="redriven" if answer == "redriven" else "unchanged")


def _changes(request: PageRequest) -> dict[str, Any]:
    form = request.fields
    changes: dict[str, Any] = {"reason": form.text("reason")}
    if (priority := form.integer("priority")) is not None:
        changes["priority"] = priority
    if (delay := form.text("delay")) is not None:
        changes["delay_seconds"] = duration.parse(delay)
        if changes["delay_seconds"] is None:
            raise InvalidInputError("bad_form", "delay: write 30, 5m, 2h or 1d")
    for name in ("title", "description", "tags"):
        if form.text(f"{name}_seen") is not None and form.text(name) != form.text(f"{name}_seen"):
            said = form.text(name) or ""
            changes[name] = said.split() if name == "tags" else said
    if form.text("payload") is not None and form.text("payload") != form.text("payload_seen"):
        changes["payload"] = form.json("payload", request.context.api_context.payload_limits)
    return changes


@pages.post("/tasks/{task_id}/{change}")
async def change_task(request: PageRequest) -> Response:
    """Cancel, redrive or discard a task."""
    path, change = _path(request), request.path_params["change"]
    if change not in _CHANGES:
        raise InvalidInputError("bad_change", "pass cancel, redrive or discard")
    response = await request.change(f"{path}/{change}", {"reason": request.fields.text("reason")})
    answer = response["answer"]
    return request.redirect(path, notice=answer if answer in _NOTICES else "unchanged")


def _path(request: PageRequest) -> str:
    return f"/tasks/{request.name('task_id')}"


def _envelope(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event as the message that the relay publishes."""
    return {
        "schema_version": SCHEMA_VERSION,
        "message_id": event["message_id"],
        "trace_id": event["trace_id"],
        "causation_id": event["causation_id"],
        "kind": event["kind"],
        "emitted_at": event["created_at"],
        "payload": event["payload"],
    }


def timeline_rows(
    task: Mapping[str, Any],
    attempts: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    now: float,
) -> list[TimelineRow]:
    """Return the attempts on a timeline from the creation of the task to its end, or to now."""
    start = _seconds(task["created_at"])
    end = _seconds(task["finished_at"]) if task["finished_at"] else max(now, start)
    scale = _TIMELINE_WIDTH / max(end - start, 0.001)
    rows = []
    for attempt in attempts:
        own_events = [event for event in events if event["attempt"] == attempt["attempt"]]
        claimed = _seconds(attempt["claimed_at"])
        ended = _seconds(attempt["ended_at"]) if attempt["ended_at"] else end
        waits = [event["payload"]["queued_ms"] for event in own_events if "queued_ms" in event["payload"]]
        wait = waits[0] / 1000 if waits and waits[0] is not None else None
        rows.append(
            TimelineRow(
                attempt,
                wait,
                ended - claimed if attempt["ended_at"] else None,
                _attempt_error(task, own_events),
                None if wait is None else _bar((claimed - wait - start) * scale, wait * scale),
                _bar((claimed - start) * scale, (ended - claimed) * scale),
            )
        )
    return rows


def _attempt_error(task: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the error of an attempt; the latest one is in the task, with its traceback."""
    is_latest = task["last_error"] is not None and any(
        event["attempt"] == task["attempt"] for event in events
    )
    for event in events:
        error: Mapping[str, Any] | None = event["payload"].get("error")
        if is_latest and event["kind"] in _FAILURES:
            latest: Mapping[str, Any] = task["last_error"]
            return latest
        if isinstance(error, dict):
            return error
        if event["kind"] == "evt.task.retry_scheduled":
            return {"class": event["payload"]["error_class"]}
    return None


def _bar(start: float, width: float) -> TimelineBar:
    """Return a bar that is wide enough to see, within the timeline."""
    width = max(width, _LEAST_WIDTH)
    start = max(0.0, min(start, _TIMELINE_WIDTH - width))
    return TimelineBar(round(start, 1), round(min(width, _TIMELINE_WIDTH), 1))


def _seconds(at: str) -> float:
    return instant(at).timestamp()
