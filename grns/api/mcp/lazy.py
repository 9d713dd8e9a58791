"""The MCP app, imported when it is asked for: that takes half a second, and most servers never are."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from grns.api.answer import ProblemAnswer
from grns.model.problem import Problem

MCP_PATH = "/mcp"
_MISSING = Problem(
    "about:blank", "Not Implemented", 501, "not_installed", "MCP is not installed: pip install 'grns[mcp]'"
)


class LazyMcp:
    """An ASGI app that becomes `McpApp` with its first request."""

    def __init__(self, api: ASGIApp, stopping: asyncio.Event) -> None:
        self._api = api
        self._stopping = stopping
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self._app is None:
            try:
                from grns.api.mcp.http import McpApp
            except ModuleNotFoundError:
                self._app = ProblemAnswer(_MISSING)
            else:
                self._app = McpApp(self._api, stopping=self._stopping)
        await self._app(scope, receive, send)
