"""Calls from pages and from MCP to the API, in process: the same routes, scopes, checks and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from grns.access.principals import Principal
from grns.api.access import PRINCIPAL
from grns.api.route import OPERATION, PREFIX
from grns.errors import GrnsError
from grns.model.problem import Problem

_BAD_REQUEST = 400
Query = Mapping[str, str | int | Sequence[str] | None]


class ApiProblemError(GrnsError):
    """The API answered with a problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response of the API. `content` is parsed JSON, or text."""

    content: Any
    etag: str | None


@dataclass(frozen=True, slots=True)
class ApiClient:
    """Calls the API for a principal that is authenticated already, or with a key in the headers (None)."""

    api: ASGIApp

    async def call(
        self,
        principal: Principal | None,
        method: str,
        path: str,
        *,
        query: Query,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        gone: asyncio.Event | None = None,
    ) -> ApiResponse:
        """Send one request and return its response; `gone` is set once no one waits for it.

        Raises:
            ApiProblemError: the API answered with a problem.
        """
        content = b"" if body is None else orjson.dumps(body)
        messages: list[Message] = []
        parts = [content]

        async def receive() -> Message:
            if not parts:  # without `gone`, who does not wait any more cancels the call
                await (gone or asyncio.Event()).wait()
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": parts.pop(), "more_body": False}

        async def send(message: Message) -> None:
            messages.append(message)

        sent = {"content-type": "application/json"} if body is not None else {}
        await self.api(_scope(principal, method, path, query, {**sent, **(headers or {})}), receive, send)
        status, received = messages[0]["status"], Headers(raw=list(messages[0]["headers"]))
        text = b"".join(message.get("body", b"") for message in messages[1:])
        answer: Any = orjson.loads(text) if "json" in received.get("content-type", "") else text.decode()
        if status >= _BAD_REQUEST:
            raise ApiProblemError(Problem(**{name: answer[name] for name in Problem.__slots__}))
        return ApiResponse(answer, received.get("etag"))

    async def stream(
        self,
        principal: Principal,
        path: str,
        query: Query,
        headers: Mapping[str, str],
        receive: Receive,
        send: Send,
    ) -> None:
        """Pass a streaming response on to a browser."""
        await self.api(_scope(principal, "GET", path, query, headers), receive, send)


def _scope(
    principal: Principal | None, method: str, path: str, query: Query, headers: Mapping[str, str]
) -> Scope:
    full_path = path if path.startswith("/metrics") else PREFIX + path
    parameters = {name: value for name, value in query.items() if value is not None}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": full_path,
        "raw_path": full_path.encode(),
        "root_path": "",
        "query_string": urlencode(parameters, doseq=True).encode(),
        "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()],
        "client": None,
        "server": None,
        OPERATION: "none",
        **({} if principal is None else {PRINCIPAL: principal}),
    }
