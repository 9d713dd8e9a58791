"""What tasks have used: tokens, time and money."""

from __future__ import annotations

from starlette.responses import Response

from grns.model.usage import USAGE_KEYS
from grns.web.page_request import PageRequest, WebPages

pages = WebPages()

_USUAL = ("day", "model")


@pages.get("/usage")
async def usage(request: PageRequest) -> Response:
    """Show what was used in the last 30 days, summed as the boxes say."""
    said = request.query_params.getlist("by")
    by = [key for key in USAGE_KEYS if key in (said or _USUAL)]
    rows = (await request.fetch("/usage", by=by))["items"]
    return await request.render(
        "usage.html", rows=rows, by=by, keys=USAGE_KEYS, total=sum(row["cost"] for row in rows)
    )
