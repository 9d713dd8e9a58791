"""MCP over HTTP, at `/mcp`: each request shows a key of the API, and its tools call the API in process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from grns.api.answer import ProblemAnswer
from grns.api.in_process import ApiClient, ApiProblemError, Query
from grns.api.mcp.server import Context, McpTools

PATH = "/mcp"
_PASSED = ("authorization", "grns-workspace", "traceparent")


@dataclass(frozen=True, slots=True)
class KeyedApi:
    """The API with the key of one request."""

    client: ApiClient
    headers: Mapping[str, str]

    async def call(
        self, method: str, path: str, *, query: Query | None = None, body: Mapping[str, Any] | None = None
    ) -> Any:
        """Send one request, and return the answer's JSON; None if it has none."""
        answer = await self.client.call(
            None, method, path, query=query or {}, body=body, headers=self.headers
        )
        return None if answer.content == "" else answer.content


class McpApp:
    """The ASGI app. It keeps nothing between requests, so any replica answers any of them."""

    def __init__(self, api: ASGIApp, *, stopping: asyncio.Event) -> None:
        self._client = ApiClient(api)
        self._stopping = stopping
        server = McpTools(self._api_of).server()
        self._app = server.streamable_http_app(
            streamable_http_path=PATH,
            stateless_http=True,
            json_response=True,
            # A page that another site has rebound has no key to show.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self._manager = server.session_manager
        self._running: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, if its key is valid."""
        try:
            await self._keyed(Request(scope)).call("GET", "/me")
        except ApiProblemError as error:
            await ProblemAnswer(error.problem)(scope, receive, send)
            return
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        await self._ready.wait()
        await self._app(scope, receive, send)

    def _api_of(self, ctx: Context) -> KeyedApi:
        return self._keyed(ctx.request)

    def _keyed(self, request: Any) -> KeyedApi:
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        return KeyedApi(self._client, headers)

    async def _run(self) -> None:
        """Run what answers the requests until the server ends."""
        async with self._manager.run():
            self._ready.set()
            await self._stopping.wait()
