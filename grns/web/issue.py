"""Issues: the home of what went wrong. One row is one failure, however many tasks had it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from starlette.responses import Response

from grns.errors import InvalidInputError
from grns.web.api_client import ApiRefusal
from grns.web.page import WebPages
from grns.web.page_request import PageRequest, name
from grns.web.terms import term

pages = WebPages()

_LIMIT, _LOOKED_AT = 50, 100
_SAMPLES = 10
_TABS: dict[str, list[str]] = {
    "open": ["new", "regressed", "acknowledged"],
    "new": ["new", "regressed"],
    "acknowledged": ["acknowledged"],
    "ignored": ["ignored"],
    "resolved": ["resolved"],
    "all": [],
}
_SAID = ("new", "acknowledged", "ignored", "resolved")
_DAY_SECONDS = 86_400


@pages.get("/issues")
async def issues(call: PageRequest) -> Response:
    """List failures that a person would call the same."""
    tab = call.query("state") or "open"
    tab = tab if tab in _TABS else "open"
    shown = call.query("shown")
    page = await call.ask(
        "/issues",
        state=_TABS[tab],
        limit=_LIMIT if shown is None else _LOOKED_AT,
        cursor=call.query("cursor"),
    )
    rows, news = page["items"], 0
    if shown is not None:
        rows, news = _pinned(rows, shown.split(","))
    return await call.show(
        "issues.html",
        tab=tab,
        tabs=list(_TABS),
        rows=rows,
        news=news,
        shown=",".join(row["fingerprint"] for row in rows),
        next_cursor=page["next_cursor"],
        is_first=call.query("cursor") is None,
    )


def _pinned(rows: list[dict[str, Any]], shown: list[str]) -> tuple[list[dict[str, Any]], int]:
    """Return the rows that are on somebody's screen, in their order, and how many others came since."""
    found = {row["fingerprint"]: row for row in rows}
    pinned = [found[one] for one in shown if one in found]
    return pinned, sum(one not in shown for one in list(found)[: len(pinned) or _LIMIT])


@pages.get("/issues/{fingerprint}")
async def issue(call: PageRequest) -> Response:
    """Show an issue: what it looks like, where it is seen, and what can be done."""
    return await _shown(call, name(call.request.path_params["fingerprint"]))


async def _shown(call: PageRequest, fingerprint: str) -> Response:
    answered = await call.answer(f"/issues/{fingerprint}")
    found = answered.content
    return await call.show(
        "issue.html",
        issue=found,
        edition=answered.etag,
        sample=await _sample(call, found["sample_task_id"]),
        tasks=(await call.ask(f"/issues/{fingerprint}/tasks", limit=_SAMPLES))["items"],
        filter=term("fingerprint", fingerprint),
        states=_SAID,
        snoozes=_SNOOZES,
    )


async def _sample(call: PageRequest, task_id: str) -> Any:
    """Return one of its tasks, None where it is deleted by now."""
    try:
        return await call.ask(f"/tasks/{name(task_id)}")
    except ApiRefusal as error:
        if error.problem.code != "not_found":
            raise
        return None


@pages.post("/issues/{fingerprint}")
async def change_issue(call: PageRequest) -> Response:
    """Say something of an issue."""
    fingerprint = name(call.request.path_params["fingerprint"])
    path, edition = f"/issues/{fingerprint}", call.form.text("edition")
    try:
        await call.act(path, await _change(call), method="PATCH", edition=edition)
    except (InvalidInputError, ApiRefusal) as error:
        call.mend(error, path)
        return await _shown(call, fingerprint)
    return call.go(path, said="issue")


async def _change(call: PageRequest) -> dict[str, Any]:
    form = call.form
    said: dict[str, Any] = {}
    if state := form.text("state"):
        said["state"] = state
    for field in ("owner", "note"):
        if form.is_set(field):
            said[field] = form.text(field)
    if snooze := form.text("snooze"):
        said["snoozed_until"] = await _until(call, snooze)
    return said


_SNOOZES = {"1 hour": 3600, "8 hours": 8 * 3600, "1 day": _DAY_SECONDS, "1 week": 7 * _DAY_SECONDS}


async def _until(call: PageRequest, snooze: str) -> str | None:
    if snooze == "wake":
        return None
    if snooze not in _SNOOZES:
        raise InvalidInputError("bad_issue", "snooze: it is one of the times that the form names")
    return (await call.room.clock.now() + timedelta(seconds=_SNOOZES[snooze])).isoformat()
