"""MCP over HTTP, at `/mcp`: each request shows a key of the API, and its tools call the API in process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from grns.api.answer import ProblemAnswer
from grns.api.in_process import ApiClient, ApiProblemError, Query
from grns.api.mcp.server import Context, McpTools

PATH = "/mcp"
_PASSED = ("authorization", "grns-workspace", "traceparent")
_GONE = "grns.gone"


class _Connection:
    """The connection of a request: its body, and whether the client is still there, as a claim asks."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_read = asyncio.Event()
        self.gone = asyncio.Event()

    async def receive(self) -> Message:
        """Return the body, and then the end."""
        if self._is_read.is_set():
            await self.gone.wait()
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.gone.set()
        if not message.get("more_body", False):
            self._is_read.set()
        return message

    async def watch(self) -> None:
        """Note that the client has gone."""
        await self._is_read.wait()
        while not self.gone.is_set():
            if (await self._receive())["type"] == "http.disconnect":
                self.gone.set()


@dataclass(frozen=True, slots=True)
class KeyedApi:
    """The API with the key of one request."""

    client: ApiClient
    headers: Mapping[str, str]
    gone: asyncio.Event | None = None

    async def call(
        self, method: str, path: str, *, query: Query | None = None, body: Mapping[str, Any] | None = None
    ) -> Any:
        """Send one request, and return the answer's JSON; None if it has none."""
        answer = await self.client.call(
            None, method, path, query=query or {}, body=body, headers=self.headers, gone=self.gone
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
        if scope["method"] != "POST":  # there are no streams, and nothing to end
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        try:
            await self._keyed(Request(scope)).call("GET", "/me")
        except ApiProblemError as error:
            await ProblemAnswer(error.problem)(scope, receive, send)
            return
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        await self._ready.wait()
        connection = _Connection(receive)
        scope[_GONE] = connection.gone
        watching = asyncio.create_task(connection.watch())
        try:
            await self._app(scope, connection.receive, send)
        finally:
            watching.cancel()

    def _api_of(self, ctx: Context) -> KeyedApi:
        return self._keyed(ctx.request)

    def _keyed(self, request: Any) -> KeyedApi:
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        return KeyedApi(self._client, headers, request.scope.get(_GONE))

    async def _run(self) -> None:
        """Run what answers the requests until the server ends."""
        async with self._manager.run():
            self._ready.set()
            await self._stopping.wait()
