"""Issues: failures grouped by fingerprint, with their tasks, status and owner."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from starlette.responses import Response

from grns.api.in_process import ApiProblemError
from grns.errors import InvalidInputError
from grns.web.filters import term
from grns.web.page_request import PageRequest, WebPages

pages = WebPages()

_LIMIT, _REFRESH_LIMIT = 50, 100
_SAMPLES = 10
_TABS: dict[str, list[str]] = {
    "open": ["new", "regressed", "acknowledged"],
    "new": ["new", "regressed"],
    "acknowledged": ["acknowledged"],
    "ignored": ["ignored"],
    "resolved": ["resolved"],
    "all": [],
}
_STATES = ("new", "acknowledged", "ignored", "resolved")
_SNOOZE_HOURS = {"1 hour": 1, "8 hours": 8, "1 day": 24, "1 week": 7 * 24}


@pages.get("/issues")
async def issues(request: PageRequest) -> Response:
    """List issues, the latest first. A refresh keeps the rows on screen and counts the others."""
    tab = request.query("state") or "open"
    tab = tab if tab in _TABS else "open"
    shown = request.query("shown")
    page = await request.fetch(
        "/issues",
        state=_TABS[tab],
        limit=_LIMIT if shown is None else _REFRESH_LIMIT,
        cursor=request.query("cursor"),
    )
    rows, news = page["items"], 0
    if shown is not None:
        rows, news = _keep_rows(rows, shown.split(","))
    return await request.render(
        "issues.html",
        tab=tab,
        tabs=list(_TABS),
        rows=rows,
        news=news,
        shown=",".join(row["fingerprint"] for row in rows),
        next_cursor=page["next_cursor"],
        is_first=request.query("cursor") is None,
    )


def _keep_rows(rows: list[dict[str, Any]], shown: list[str]) -> tuple[list[dict[str, Any]], int]:
    """Return the rows that a screen shows, in its order, and how many others are before them now."""
    by_fingerprint = {row["fingerprint"]: row for row in rows}
    kept = [by_fingerprint[fingerprint] for fingerprint in shown if fingerprint in by_fingerprint]
    first = list(by_fingerprint)[: len(kept) or _LIMIT]
    return kept, sum(fingerprint not in shown for fingerprint in first)


@pages.get("/issues/{fingerprint}")
async def issue(request: PageRequest) -> Response:
    """Show an issue with a sample, its tasks, and the actions on them."""
    fingerprint = request.name("fingerprint")
    response = await request.fetch_response(f"/issues/{fingerprint}")
    return await request.render(
        "issue.html",
        issue=response.content,
        etag=response.etag,
        sample=await _sample(request, response.content["sample_task_id"]),
        tasks=(await request.fetch(f"/issues/{fingerprint}/tasks", limit=_SAMPLES))["items"],
        filter=term("fingerprint", fingerprint),
        states=_STATES,
        snoozes=_SNOOZE_HOURS,
    )


async def _sample(request: PageRequest, task_id: str) -> Any:
    """Return a task of the issue, or None if it has been deleted."""
    try:
        return await request.fetch(f"/tasks/{task_id}")
    except ApiProblemError as error:
        if error.problem.code != "not_found":
            raise
        return None


@pages.post("/issues/{fingerprint}")
async def change_issue(request: PageRequest) -> Response:
    """Change the state, owner, note or snooze of an issue."""
    path = f"/issues/{request.name('fingerprint')}"
    try:
        changes = await _changes(request)
        await request.change(path, changes, method="PATCH", etag=request.fields.text("etag"))
    except (InvalidInputError, ApiProblemError) as error:
        request.keep_form(error, path)
        return await issue(request)
    return request.redirect(path, notice="issue")


async def _changes(request: PageRequest) -> dict[str, Any]:
    form = request.fields
    changes: dict[str, Any] = {name: form.text(name) for name in ("owner", "note") if name in form}
    if state := form.text("state"):
        changes["state"] = state
    if snooze := form.text("snooze"):
        changes["snoozed_until"] = await _snoozed_until(request, snooze)
    return changes


async def _snoozed_until(request: PageRequest, snooze: str) -> str | None:
    if snooze == "wake":
        return None
    if snooze not in _SNOOZE_HOURS:
        raise InvalidInputError("bad_issue", "snooze: choose one of the times in the form")
    return (await request.context.clock.now() + timedelta(hours=_SNOOZE_HOURS[snooze])).isoformat()
