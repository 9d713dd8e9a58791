"""Operations: what is done to everything that a filter finds. It is counted first, and then confirmed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from grns.errors import InvalidInputError
from grns.operations.model import ENDED, Action
from grns.web.api_client import ApiRefusal
from grns.web.form import Form
from grns.web.page import WebPages
from grns.web.page_request import PageRequest
from grns.web.terms import term, together

pages = WebPages()

# Beyond so many, their number has to be written down.
CONFIRMED_ABOVE = 100
# Since it was counted, there may be so many more; then it is counted again.
_MORE = 1.1

_NO_FILTER = "Write a filter: where none is written, nothing is done. All that are dead are status:dead."

_SAID = {"pause": "paused", "resume": "resumed", "cancel": "operation_cancelled"}


@dataclass(frozen=True, slots=True)
class Draft:
    """An operation as somebody writes it. Texts are as they were written."""

    action: str
    filter: str
    canary: bool = False
    rate: str | None = None
    patch: str | None = None
    agent_type: str | None = None
    reason: str | None = None


@pages.get("/operations")
async def operations(call: PageRequest) -> Response:
    """List operations."""
    page = await call.ask("/operations", cursor=call.query("cursor"))
    return await call.show(
        "operations.html",
        rows=page["items"],
        next_cursor=page["next_cursor"],
        is_any_under_way=any(one["state"] not in ENDED for one in page["items"]),
    )


@pages.get("/operations/new")
async def new_operation(call: PageRequest) -> Response:
    """Ask what is to be done, and say to how many tasks it would be."""
    call.need("operate")
    ids, action = call.queries("id"), call.query("action") or Action.REDRIVE.value
    wanted = together(call.query("filter") or "", term("id", *ids) if ids else "")
    if not wanted:
        is_empty = call.query("selected") is not None
        return await _shown(call, Draft(action, ""), None, "Nothing was selected." if is_empty else None)
    return await _counted(call, Draft(action, wanted))


@pages.post("/operations/new")
async def count_operation(call: PageRequest) -> Response:
    """Count again, with what has been written meanwhile."""
    call.need("operate")
    return await _counted(call, _draft(call.form))


@pages.post("/operations")
async def create_operation(call: PageRequest) -> Response:
    """Begin an operation, once the number of its tasks was seen, and written down where there are many."""
    call.need("operate")
    draft = _draft(call.form)
    try:
        preview = await _count(call, draft)
    except _ToMend as error:
        return await _shown(call, draft, None, str(error), status=400)
    seen, written = call.form.whole("seen"), call.form.text("confirmation")
    if seen is None or preview["count"] > seen * _MORE:
        return await _shown(call, draft, preview, "There are more of them by now: look at the number again.")
    if seen > CONFIRMED_ABOVE and written != str(seen):
        return await _shown(
            call, draft, preview, f"To begin, write the number {seen} into the field below it."
        )
    made = await call.act("/operations", _body(call, draft))
    return call.go(f"/operations/{made['id']}", said="operation")


@pages.get("/operations/{number:int}")
async def operation(call: PageRequest) -> Response:
    """Show how far an operation is."""
    found = await call.ask(f"/operations/{call.request.path_params['number']}")
    has_ended = found["state"] in ENDED
    # What was moved may end only long after all was moved.
    is_settled = has_ended and not found["outstanding"]
    return await call.show("operation.html", operation=found, has_ended=has_ended, is_settled=is_settled)


@pages.post("/operations/{number:int}/{change}")
async def change_operation(call: PageRequest) -> Response:
    """Pause an operation, let it go on, or end it."""
    number, change = call.request.path_params["number"], call.request.path_params["change"]
    if change not in _SAID:
        raise InvalidInputError("bad_operation", "an operation is paused, resumed or cancelled")
    await call.act(f"/operations/{number}/{change}", {"reason": call.form.text("reason")})
    return call.go(f"/operations/{number}", said=_SAID[change])


class _ToMend(Exception):
    """A draft makes no sense; the text says why. It is shown again, with all that was written."""


async def _counted(call: PageRequest, draft: Draft) -> Response:
    try:
        preview = await _count(call, draft)
    except _ToMend as error:
        return await _shown(call, draft, None, str(error), status=400)
    return await _shown(call, draft, preview)


async def _count(call: PageRequest, draft: Draft) -> Any:
    """Return what a draft would find now; `_ToMend`."""
    if not draft.filter:
        raise _ToMend(_NO_FILTER)
    try:
        return await call.act("/operations", {**_body(call, draft), "dry_run": True})
    except InvalidInputError as error:
        raise _ToMend(str(error)) from error
    except ApiRefusal as error:
        if error.problem.status != 400:
            raise
        raise _ToMend(error.problem.detail) from error


async def _shown(
    call: PageRequest,
    draft: Draft,
    preview: Mapping[str, Any] | None,
    trouble: str | None = None,
    *,
    status: int = 200,
) -> Response:
    return await call.show(
        "new_operation.html",
        status=status,
        draft=draft,
        preview=preview,
        trouble=trouble,
        actions=list(Action),
        needs_number=preview is not None and preview["count"] > CONFIRMED_ABOVE,
    )


def _draft(form: Form) -> Draft:
    return Draft(
        form.text("action") or "",
        form.text("filter") or "",
        form.is_set("canary"),
        form.text("rate"),
        form.text("patch"),
        form.text("agent_type"),
        form.text("reason"),
    )


def _body(call: PageRequest, draft: Draft) -> dict[str, Any]:
    """Return the order, as the API takes it; `InvalidInputError` where a text is not what its field asks
    for."""
    form = Form([(name, getattr(draft, name) or "") for name in ("rate", "patch")])
    return {
        "action": draft.action,
        "filter": draft.filter,
        "canary": draft.canary,
        "rate_per_minute": form.number("rate"),
        "patch": form.document("patch", call.room.context.payload_limits),
        "agent_type": draft.agent_type,
        "reason": draft.reason,
    }
