"""One task: where it is and why, what happened to it, and what can be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from grns.api.app import ROUTES
from grns.errors import InvalidInputError
from grns.model.envelope import SCHEMA_VERSION
from grns.model.task import REDRIVABLE, TERMINAL, Status
from grns.web.formatting import instant
from grns.web.page import WebPages
from grns.web.page_request import PageRequest, name
from grns.web.terms import term

pages = WebPages()

_CHANGES = frozenset({"cancel", "redrive", "discard"})
_EDITABLE = frozenset(Status) - {Status.RUNNING, Status.SUCCEEDED}
_FAILURES = frozenset({"evt.task.retry_scheduled", "evt.task.failed", "evt.task.dead"})
_WIDTH = 1000.0
_ATTEMPTS, _MESSAGES = 50, 200
_EXPLAIN, _KNOWN = "explain_task", frozenset(route.name for route in ROUTES)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a timeline: from where to where, of a thousand."""

    start: float
    width: float


@dataclass(frozen=True, slots=True)
class TimelineLane:
    """One attempt of the timeline: how long it waited and ran, in seconds, how it ended, and of what."""

    attempt: Mapping[str, Any]
    wait_seconds: float | None
    run_seconds: float | None
    error: Mapping[str, Any] | None
    wait: Stretch | None
    run: Stretch


@pages.get("/tasks/{task_id}")
async def task(call: PageRequest) -> Response:
    """Show a task."""
    task_id = name(call.request.path_params["task_id"])
    answered = await call.answer(f"/tasks/{task_id}")
    found, status = answered.content, Status(answered.content["status"])
    attempts = (await call.ask(f"/tasks/{task_id}/attempts"))["items"]
    page = await call.ask(f"/tasks/{task_id}/events", limit=_MESSAGES, cursor=call.query("cursor"))
    events = page["items"]
    now = (await call.room.clock.now()).timestamp()
    return await call.show(
        "task.html",
        task=found,
        edition=answered.etag,
        why=None if call.is_pulse else await _why(call, task_id),
        lanes=_lanes(found, attempts[-_ATTEMPTS:], events, now),
        left_out=max(0, len(attempts) - _ATTEMPTS),
        events=events,
        next_cursor=page["next_cursor"],
        envelopes={event["message_id"]: _envelope(event) for event in events},
        can_cancel=status not in TERMINAL,
        can_redrive=status in REDRIVABLE,
        can_discard=status in REDRIVABLE and found["discarded_at"] is None,
        can_edit=status in _EDITABLE,
        is_over=status in TERMINAL,
        trace=term("trace", found["trace_id"]),
    )


@pages.post("/tasks/{task_id}/{change}")
async def change_task(call: PageRequest) -> Response:
    """Cancel a task, redrive or discard it."""
    task_id, change = name(call.request.path_params["task_id"]), call.request.path_params["change"]
    if change not in _CHANGES:
        raise InvalidInputError("bad_change", "a task is cancelled, redriven or discarded")
    answered = await call.act(f"/tasks/{task_id}/{change}", {"reason": call.form.text("reason")})
    done = {"cancelled", "requested", "redriven", "discarded"}
    return call.go(
        f"/tasks/{task_id}", said=answered["answer"] if answered["answer"] in done else "unchanged"
    )


async def _why(call: PageRequest, task_id: str) -> Mapping[str, Any] | None:
    """Return why a task is where it is: a sentence, and what helps. None where the API cannot say."""
    if _EXPLAIN not in _KNOWN:
        return None
    said: Mapping[str, Any] = await call.ask(f"/tasks/{task_id}/explain")
    return said


def _envelope(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the log as the message that the relay sends of it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "message_id": event["message_id"],
        "trace_id": event["trace_id"],
        "causation_id": event["causation_id"],
        "kind": event["kind"],
        "emitted_at": event["created_at"],
        "payload": event["payload"],
    }


def _lanes(
    task: Mapping[str, Any],
    attempts: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    now: float,
) -> list[TimelineLane]:
    """Return the attempts as they lie in the time from the task's beginning to its end, or to now."""
    begin = _seconds(task["created_at"])
    end = _seconds(task["finished_at"]) if task["finished_at"] else max(now, begin)
    scale = _WIDTH / max(end - begin, 0.001)
    found = []
    for attempt in attempts:
        told = [event for event in events if event["attempt"] == attempt["attempt"]]
        claimed = _seconds(attempt["claimed_at"])
        ended = _seconds(attempt["ended_at"]) if attempt["ended_at"] else end
        wait = next(
            (event["payload"].get("queued_ms") for event in told if "queued_ms" in event["payload"]), None
        )
        wait_seconds = None if wait is None else wait / 1000
        found.append(
            TimelineLane(
                attempt,
                wait_seconds,
                ended - claimed if attempt["ended_at"] else None,
                _error(task, told),
                None
                if wait_seconds is None
                else _stretch((claimed - wait_seconds - begin) * scale, wait_seconds * scale),
                _stretch((claimed - begin) * scale, (ended - claimed) * scale),
            )
        )
    return found


def _error(task: Mapping[str, Any], told: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the error of an attempt: of the latest one as the task has it, with its traceback."""
    is_latest = task["last_error"] is not None and any(event["attempt"] == task["attempt"] for event in told)
    for event in told:
        if is_latest and event["kind"] in _FAILURES:
            latest: Mapping[str, Any] = task["last_error"]
            return latest
        if isinstance(event["payload"].get("error"), dict):
            error: Mapping[str, Any] = event["payload"]["error"]
            return error
        if event["kind"] == "evt.task.retry_scheduled":
            return {"class": event["payload"]["error_class"]}
    return None


def _stretch(start: float, width: float) -> Stretch:
    """Return a stretch that is wide enough to be seen, and within the drawing."""
    wide = max(width, 2.0)
    return Stretch(round(max(0.0, min(start, _WIDTH - wide)), 1), round(min(wide, _WIDTH), 1))


def _seconds(at: str) -> float:
    return instant(at).timestamp()
