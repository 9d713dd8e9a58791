"""Help: what filters can say, and which keys do what."""

from __future__ import annotations

from starlette.responses import Response

from grns.web.page import WebPages
from grns.web.page_request import PageRequest

pages = WebPages()


@pages.get("/help")
async def help_page(call: PageRequest) -> Response:
    """Show what filters can say, and which keys do what."""
    said = await call.ask("/terms")
    return await call.show("help.html", terms=said["items"])
