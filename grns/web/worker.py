"""Workers: who is there, what each can do, and how much it has in hand."""

from __future__ import annotations

from starlette.responses import Response

from grns.web import alarm
from grns.web.page import WebPages
from grns.web.page_request import PageRequest
from grns.web.terms import term

pages = WebPages()

_LIMIT, _QUEUED = 200, 100


@pages.get("/workers")
async def workers(call: PageRequest) -> Response:
    """List the workers that are known."""
    page = await call.ask("/workers", limit=_LIMIT, cursor=call.query("cursor"))
    is_all = page["next_cursor"] is None and call.query("cursor") is None
    # Of a part of the workers nobody can say what none of them does.
    queued = (await call.ask("/tasks", filter="status:queued", limit=_QUEUED))["items"] if is_all else []
    return await call.show(
        "workers.html",
        rows=page["items"],
        next_cursor=page["next_cursor"],
        alarms=alarm.of_types(queued, page["items"]),
        running=lambda agent_id: term("worker", agent_id),
    )
