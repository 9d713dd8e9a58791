"""Lists of tasks: the filter stands in the address, so that what one sees can be sent to somebody."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from starlette.responses import HTMLResponse, Response

from grns.errors import InvalidInputError
from grns.model.filter import MOST_VALUES, TERMS
from grns.model.task import Status
from grns.operations.model import Action, request
from grns.web import render
from grns.web.api_client import ApiRefusal
from grns.web.page import WebPages
from grns.web.page_request import PageRequest
from grns.web.terms import split, term, together

pages = WebPages()

# As many as a filter can name: what is selected is an operation with a filter of its own.
LIMIT = MOST_VALUES
_FULL_ID = re.compile(r"gr-[0-9a-v]{26}")
_VIEWS = 50


@dataclass(frozen=True, slots=True)
class Tab:
    """One state, the filter that asks for it besides, and how many tasks are there, where that is known."""

    name: str
    filter: str
    is_current: bool
    count: int | None


@pages.get("/tasks")
async def tasks(call: PageRequest) -> Response:
    """List the tasks that a filter finds."""
    text, saved = (call.query("filter") or "").strip(), call.query("saved")
    if _FULL_ID.fullmatch(text):
        return call.go(f"/tasks/{text}")
    shown = call.query("shown")
    try:
        page = await call.ask("/tasks", filter=text, saved=saved, limit=LIMIT, cursor=call.query("cursor"))
    except ApiRefusal as error:
        if error.problem.code not in ("bad_filter", "not_found"):
            raise
        return await _shown(call, text, {"items": [], "next_cursor": None}, trouble=error.problem.detail)
    if shown is None:
        return await _shown(call, text, page)
    rows = await _as_they_are(call, shown.split(",")[:LIMIT])
    # On later pages rows come and go all the time.
    news = 0 if call.query("cursor") else sum(row["id"] not in shown for row in page["items"])
    return await _shown(call, text, {**page, "items": rows}, news=news)


@pages.get("/tasks/completions")
async def completions(call: PageRequest) -> Response:
    """List how a filter may go on, as the options of its field."""
    text = call.query("filter") or ""
    begun = re.search(r"\S*\Z", text)
    beginning = begun[0] if begun else ""
    said = await call.ask("/terms", beginning=beginning)
    options = [
        {"value": text[: len(text) - len(beginning)] + one["text"], "says": one["says"]}
        for one in said["completions"]
    ]
    return HTMLResponse(render.render("completions.html", {"options": options}))


async def _shown(
    call: PageRequest, text: str, page: dict[str, Any], *, news: int = 0, trouble: str | None = None
) -> Response:
    state, rest = split(text)
    views = await call.ask("/filters", limit=_VIEWS)
    # Whether a bulk action means what is shown depends on the filter, never on the page.
    saved = call.query("saved")
    whole = together(next((view["text"] for view in views["items"] if view["name"] == saved), ""), text)
    return await call.show(
        "tasks.html",
        status=400 if trouble else 200,
        text=text,
        whole=whole,
        saved=saved,
        tabs=await _tabs(call, state, rest),
        rows=page["items"],
        news=news,
        offered=[] if trouble else _offered(call, whole),
        trouble=trouble,
        next_cursor=page["next_cursor"],
        is_partial=page.get("is_partial", False),
        is_first=call.query("cursor") is None,
        cursor=call.query("cursor"),
        shown=",".join(row["id"] for row in page["items"]),
        views=views["items"],
        terms=TERMS,
    )


def _offered(call: PageRequest, whole: str) -> list[Action]:
    """Return what can be done to some task that a filter finds."""
    return [one for one in Action if call.may("operate") and _can_be_done(one, whole)]


def _can_be_done(action: Action, whole: str) -> bool:
    try:
        request(action=action, filter=whole)
    except InvalidInputError:
        return False
    return True


async def _tabs(call: PageRequest, state: str | None, rest: str) -> list[Tab]:
    """Return the states to look at; how many are in each is counted only of all tasks together."""
    counts = (await call.ask("/counts"))["states"] if not rest and call.query("saved") is None else {}
    tabs = [Tab("all", rest, state is None, sum(counts.values()) if counts else None)]
    for one in Status:
        text = together(term("status", one.value), rest)
        tabs.append(Tab(one.value, text, state == one.value, counts.get(one.value)))
    return tabs


async def _as_they_are(call: PageRequest, ids: list[str]) -> list[dict[str, Any]]:
    """Return the tasks that are on somebody's screen, in the order in which they are there."""
    known = [one for one in ids if _FULL_ID.fullmatch(one)]
    if not known:
        return []
    page = await call.ask("/tasks", filter=term("id", *known), limit=LIMIT)
    found = {row["id"]: row for row in page["items"]}
    return [found[one] for one in known if one in found]
