"""Lists of tasks. The filter is in the URL, so that a list can be bookmarked, sent, or saved as a view."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from starlette.responses import HTMLResponse, Response

from grns.api.in_process import ApiProblemError
from grns.errors import InvalidInputError
from grns.model import subjects
from grns.model.filter import MOST_VALUES
from grns.model.filter_kinds import TERMS
from grns.model.task import TaskStatus
from grns.operations.model import Action
from grns.operations.model import request as operation_request
from grns.web.filters import join, split_status, term
from grns.web.page_request import PageRequest, WebPages
from grns.web.templating import render

pages = WebPages()

# As many as a filter can name: the selected tasks become an operation with a filter of their ids.
LIMIT = MOST_VALUES
_TASK_ID = re.compile(r"gr-[0-9a-v]{26}")
_VIEWS = 50


@dataclass(frozen=True, slots=True)
class StatusTab:
    """A status, the filter that asks for it, and how many tasks have it, if that is known."""

    name: str
    filter: str
    is_current: bool
    count: int | None


@pages.get("/tasks")
async def tasks(request: PageRequest) -> Response:
    """List the tasks that match a filter. A refresh keeps the rows on screen and counts the others."""
    text, saved = (request.query("filter") or "").strip(), request.query("saved")
    if _TASK_ID.fullmatch(text):
        return request.redirect(f"/tasks/{text}")
    shown, cursor = request.query("shown"), request.query("cursor")
    try:
        page = await request.fetch("/tasks", filter=text, saved=saved, limit=LIMIT, cursor=cursor)
    except ApiProblemError as error:
        if error.problem.code not in ("bad_filter", "not_found"):
            raise
        page = {"items": [], "next_cursor": None}
        return await _render_list(request, text, page, error=error.problem.detail)
    if shown is None:
        return await _render_list(request, text, page)
    rows = await _read_tasks(request, shown.split(",")[:LIMIT])
    # Later pages change all the time.
    news = 0 if cursor else sum(row["id"] not in shown for row in page["items"])
    return await _render_list(request, text, {**page, "items": rows}, news=news)


async def _render_list(
    request: PageRequest, text: str, page: dict[str, Any], *, news: int = 0, error: str | None = None
) -> Response:
    status, others = split_status(text)
    views = (await request.fetch("/filters", limit=_VIEWS))["items"]
    # A bulk action is offered by the filter alone, whatever rows this page shows.
    saved = request.query("saved")
    full_filter = join(next((view["text"] for view in views if view["name"] == saved), ""), text)
    return await request.render(
        "tasks.html",
        status=400 if error else 200,
        text=text,
        full_filter=full_filter,
        saved=saved,
        tabs=await _tabs(request, status, others),
        rows=page["items"],
        news=news,
        actions=[] if error else _actions(request, full_filter),
        error=error,
        next_cursor=page["next_cursor"],
        is_partial=page.get("is_partial", False),
        is_first=request.query("cursor") is None,
        shown=",".join(row["id"] for row in page["items"]),
        views=views,
        terms=TERMS,
    )


def _actions(request: PageRequest, filter_text: str) -> list[Action]:
    """Return the bulk actions that tasks with this filter can take."""
    return [action for action in Action if request.may("operate") and _is_possible(action, filter_text)]


def _is_possible(action: Action, filter_text: str) -> bool:
    try:
        operation_request(action=action, filter=filter_text)
    except InvalidInputError:
        return False
    return True


async def _tabs(request: PageRequest, status: str | None, others: str) -> list[StatusTab]:
    """Return a tab for each status; counts are known without further terms only."""
    is_unfiltered = not others and request.query("saved") is None
    counts = (await request.fetch("/counts"))["states"] if is_unfiltered else {}
    tabs = [StatusTab("all", others, status is None, sum(counts.values()) if counts else None)]
    tabs += [
        StatusTab(
            each.value, join(term("status", each.value), others), status == each, counts.get(each.value)
        )
        for each in TaskStatus
    ]
    return tabs


async def _read_tasks(request: PageRequest, ids: list[str]) -> list[dict[str, Any]]:
    """Return the current rows of tasks on a screen, in its order."""
    valid = [task_id for task_id in ids if _TASK_ID.fullmatch(task_id)]
    if not valid:
        return []
    page = await request.fetch("/tasks", filter=term("id", *valid), limit=LIMIT)
    by_id = {row["id"]: row for row in page["items"]}
    return [by_id[task_id] for task_id in valid if task_id in by_id]


@pages.get("/tasks/completions")
async def completions(request: PageRequest) -> Response:
    """Return completions of a filter, as the options of its field."""
    text = request.query("filter") or ""
    last_word = re.search(r"\S*\Z", text)
    beginning = last_word[0] if last_word else ""
    response = await request.fetch("/terms", beginning=beginning)
    before = text[: len(text) - len(beginning)]
    options = [
        {"value": before + completion["text"], "says": completion["says"]}
        for completion in response["completions"]
    ]
    return HTMLResponse(render("completions.html", {"options": options}))


@pages.post("/views")
async def save_view(request: PageRequest) -> Response:
    """Save the filter under a name, for all users of the workspace."""
    view = subjects.token(request.fields.text("name") or "", name="name")
    body = {"text": request.fields.text("filter") or ""}
    await request.change(f"/filters/{view}", body, method="PUT")
    return request.redirect("/tasks", saved=view, notice="saved")


@pages.post("/views/{name}/forget")
async def forget_view(request: PageRequest) -> Response:
    """Delete a saved view."""
    await request.change(f"/filters/{request.name('name')}", method="DELETE")
    return request.redirect("/tasks", notice="forgotten")
