"""Help: what filters can say, and which keys do what."""

from __future__ import annotations

from starlette.responses import Response

from grns.web.call import Call
from grns.web.page import Pages

pages = Pages()


@pages.get("/help")
async def help_page(call: Call) -> Response:
    """Show what filters can say, and which keys do what."""
    said = await call.ask("/terms")
    return await call.show("help.html", terms=said["items"])
