"""What tasks have used: tokens, time and money."""

from __future__ import annotations

from starlette.responses import Response

from grns.api.in_process import ApiProblemError
from grns.errors import InvalidInputError
from grns.model.usage import USAGE_KEYS
from grns.web.page_request import PageRequest, WebPages

pages = WebPages()

_USUAL = ("day", "model")


@pages.get("/usage")
async def usage(request: PageRequest, failed: str | None = None) -> Response:
    """Show what was used in the last 30 days, summed as the boxes say."""
    said = request.query_params.getlist("by")
    by = [key for key in USAGE_KEYS if key in (said or _USUAL)]
    rows = (await request.fetch("/usage", by=by))["items"]
    budgets = (await request.fetch("/budgets"))["items"]
    return await request.render(
        "usage.html",
        rows=rows,
        by=by,
        keys=USAGE_KEYS,
        total=sum(row["cost"] for row in rows),
        budgets=budgets,
        failed=failed,
    )


@pages.post("/usage/{budget}/allow")
async def allow_more(request: PageRequest) -> Response:
    """Allow more of a budget until its present period ends."""
    name = request.name("budget")
    await request.fetch(f"/budgets/{name}")  # 404 comes before what is wrong with the form
    try:
        more = {"cost": request.fields.number("cost"), "tokens": request.fields.integer("tokens")}
        await request.change(f"/budgets/{name}/allow", more)
    except (InvalidInputError, ApiProblemError) as error:
        request.keep_form(error, "/usage")
        return await usage(request, name)
    return request.redirect("/usage", notice="allowed")
