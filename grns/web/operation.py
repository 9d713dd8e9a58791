"""Bulk operations: counting what a filter matches, starting them, and following their progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from grns.api.in_process import ApiProblemError
from grns.errors import InvalidInputError
from grns.operations.model import ENDED, Action
from grns.web.filters import join, term
from grns.web.form import Form
from grns.web.page_request import PageRequest, WebPages

pages = WebPages()

# Above this number, the user has to type it.
CONFIRMED_ABOVE = 100
# If the number grew by more than this since the preview, the user sees it again.
_GROWTH = 1.1

_NO_FILTER = "Write a filter: an empty one is refused. To match all dead tasks, write status:dead."
_CHANGES = {"pause": "paused", "resume": "resumed", "cancel": "operation_cancelled"}


@dataclass(frozen=True, slots=True)
class Draft:
    """A new operation as the user wrote it."""

    action: str
    filter: str
    canary: bool = False
    rate: str | None = None
    patch: str | None = None
    agent_type: str | None = None
    reason: str | None = None


class _DraftError(Exception):
    """A draft is not valid. The form is shown again with the message."""


@pages.get("/operations")
async def operations(request: PageRequest) -> Response:
    """List the operations."""
    page = await request.fetch("/operations", cursor=request.query("cursor"))
    return await request.render(
        "operations.html",
        rows=page["items"],
        next_cursor=page["next_cursor"],
        is_any_running=any(row["state"] not in ENDED for row in page["items"]),
    )


@pages.get("/operations/new")
async def new_operation(request: PageRequest) -> Response:
    """Show the form of a new operation, with the number of matching tasks."""
    request.require("operate")
    ids = request.query_params.getlist("id")
    action = request.query("action") or Action.REDRIVE.value
    filter_text = join(request.query("filter") or "", term("id", *ids) if ids else "")
    if not filter_text:
        is_empty = request.query("selected") is not None
        return await _render_draft(
            request, Draft(action, ""), None, "Nothing was selected." if is_empty else None
        )
    return await _render_preview(request, Draft(action, filter_text))


@pages.post("/operations/new")
async def count_operation(request: PageRequest) -> Response:
    """Count the matching tasks of a changed draft."""
    request.require("operate")
    return await _render_preview(request, _draft(request.fields))


@pages.post("/operations")
async def create_operation(request: PageRequest) -> Response:
    """Start an operation whose number of tasks the user has seen, and typed if it is large."""
    request.require("operate")
    draft = _draft(request.fields)
    try:
        preview = await _preview(request, draft)
    except _DraftError as error:
        return await _render_draft(request, draft, None, str(error), status=400)
    seen, typed = request.fields.integer("seen"), request.fields.text("confirmation")
    if seen is None or preview["count"] > seen * _GROWTH:
        return await _render_draft(request, draft, preview, "The number of tasks has grown: check it again.")
    if seen > CONFIRMED_ABOVE and typed != str(seen):
        return await _render_draft(
            request, draft, preview, f"To start, write the number {seen} into the field above the button."
        )
    made = await request.change("/operations", _body(request, draft))
    return request.redirect(f"/operations/{made['id']}", notice="operation")


@pages.get("/operations/{number:int}")
async def operation(request: PageRequest) -> Response:
    """Show an operation and its progress."""
    found = await request.fetch(f"/operations/{request.path_params['number']}")
    has_ended = found["state"] in ENDED
    # Redriven tasks may run long after the last one was moved.
    is_settled = has_ended and not found["outstanding"]
    return await request.render("operation.html", operation=found, has_ended=has_ended, is_settled=is_settled)


@pages.post("/operations/{number:int}/{change}")
async def change_operation(request: PageRequest) -> Response:
    """Pause, resume or cancel an operation."""
    number, change = request.path_params["number"], request.path_params["change"]
    if change not in _CHANGES:
        raise InvalidInputError("bad_operation", "pass pause, resume or cancel")
    await request.change(f"/operations/{number}/{change}", {"reason": request.fields.text("reason")})
    return request.redirect(f"/operations/{number}", notice=_CHANGES[change])


async def _render_preview(request: PageRequest, draft: Draft) -> Response:
    try:
        preview = await _preview(request, draft)
    except _DraftError as error:
        return await _render_draft(request, draft, None, str(error), status=400)
    return await _render_draft(request, draft, preview)


async def _preview(request: PageRequest, draft: Draft) -> Any:
    """Return the number of tasks that a draft matches now, by type."""
    if not draft.filter:
        raise _DraftError(_NO_FILTER)
    try:
        return await request.change("/operations", {**_body(request, draft), "dry_run": True})
    except InvalidInputError as error:
        raise _DraftError(str(error)) from error
    except ApiProblemError as error:
        if error.problem.status != 400:
            raise
        raise _DraftError(error.problem.detail) from error


async def _render_draft(
    request: PageRequest,
    draft: Draft,
    preview: Mapping[str, Any] | None,
    error: str | None = None,
    *,
    status: int = 200,
) -> Response:
    return await request.render(
        "new_operation.html",
        status=status,
        draft=draft,
        preview=preview,
        error=error,
        actions=list(Action),
        needs_number=preview is not None and preview["count"] > CONFIRMED_ABOVE,
    )


def _draft(form: Form) -> Draft:
    return Draft(
        form.text("action") or "",
        form.text("filter") or "",
        "canary" in form,
        form.text("rate"),
        form.text("patch"),
        form.text("agent_type"),
        form.text("reason"),
    )


def _body(request: PageRequest, draft: Draft) -> dict[str, Any]:
    """Return a draft as the API takes it; raise InvalidInputError if a text is not valid in its field."""
    form = Form({"rate": draft.rate or "", "patch": draft.patch or ""})
    return {
        "action": draft.action,
        "filter": draft.filter,
        "canary": draft.canary,
        "rate_per_minute": form.number("rate"),
        "patch": form.json("patch", request.context.api_context.payload_limits),
        "agent_type": draft.agent_type,
        "reason": draft.reason,
    }
