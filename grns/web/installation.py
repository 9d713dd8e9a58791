"""The installation: what of it is not as it should be, and how the broker's streams and durables drift."""

from __future__ import annotations

from starlette.responses import Response

from grns.web.page import WebPages
from grns.web.page_request import PageRequest

pages = WebPages()


@pages.get("/installation")
async def installation(call: PageRequest) -> Response:
    """Show what all checks have found, and the broker's streams."""
    said = await call.ask("/doctor")
    found = said["findings"]
    return await call.show(
        "installation.html",
        said=said,
        wrong=[one for one in found if one["severity"] != "ok"],
        well=[one for one in found if one["severity"] == "ok"],
    )
