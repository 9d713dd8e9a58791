"""Installation and help: the findings of `grns doctor`, streams, filter terms and keyboard shortcuts."""

from __future__ import annotations

from starlette.responses import Response

from grns.web.page_request import PageRequest, WebPages

pages = WebPages()


@pages.get("/installation")
async def installation(request: PageRequest) -> Response:
    """Show the findings of all checks, and the broker's streams."""
    report = await request.fetch("/doctor")
    findings = report["findings"]
    return await request.render(
        "installation.html",
        streams=report["streams"],
        problems=[finding for finding in findings if finding["severity"] != "ok"],
        passed=[finding for finding in findings if finding["severity"] == "ok"],
    )


@pages.get("/help")
async def help_page(request: PageRequest) -> Response:
    """Show the terms of filters, and keyboard shortcuts."""
    return await request.render("help.html", terms=(await request.fetch("/terms"))["items"])
