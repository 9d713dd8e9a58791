"""The API, asked from within: the dashboard sees and does what any client could, and nothing else.

Each question goes through the same routes, with their scopes, checks and limits; only the network is left
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from grns.access.principals import Principal
from grns.api.access import PRINCIPAL
from grns.api.route import OPERATION, PREFIX
from grns.errors import GrnsError
from grns.model.problem import Problem

_GOOD = 400
Query = Mapping[str, str | int | Sequence[str] | None]


class ApiRefusal(GrnsError):
    """The API would not do it; `problem` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Answered:
    """What the API answered. `content` is JSON, or text where it is none; `etag` is the edition shown."""

    status: int
    content: Any
    etag: str | None


class Inside:
    """Asks the API for somebody who was let in."""

    def __init__(self, api: ASGIApp) -> None:
        self._api = api

    async def ask(
        self,
        principal: Principal,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answered:
        """Return the answer to one request; `ApiRefusal` where it is a problem."""
        scope = _scope(principal, method, path, query, headers, has_body=body is not None)
        answer = _Answer(b"" if body is None else orjson.dumps(body))
        await self._api(scope, answer.receive, answer.send)
        found = answer.read()
        if found.status >= _GOOD:
            said: dict[str, Any] = found.content
            raise ApiRefusal(Problem(**{name: said[name] for name in Problem.__slots__}))
        return found

    async def pass_on(
        self,
        principal: Principal,
        path: str,
        query: Query,
        headers: Mapping[str, str],
        receive: Receive,
        send: Send,
    ) -> None:
        """Let somebody read an answer as it comes: a stream."""
        await self._api(_scope(principal, "GET", path, query, headers, has_body=False), receive, send)


class _Answer:
    """One exchange: the body that goes in, and what comes out."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []

    async def receive(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], dict(message.get("headers", ()))
        else:
            self._parts.append(message.get("body", b""))

    def read(self) -> Answered:
        content = b"".join(self._parts)
        is_json = b"json" in self._headers.get(b"content-type", b"")
        etag = self._headers.get(b"etag", b"").decode() or None
        return Answered(self._status, orjson.loads(content) if is_json else content.decode(), etag)


def _scope(
    principal: Principal,
    method: str,
    path: str,
    query: Query | None,
    headers: Mapping[str, str] | None,
    *,
    has_body: bool,
) -> Scope:
    whole = path if path.startswith("/metrics") else PREFIX + path
    said = {"content-type": "application/json"} if has_body else {}
    named = {name: value for name, value in (query or {}).items() if value is not None}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": whole,
        "raw_path": whole.encode(),
        "root_path": "",
        "query_string": urlencode(named, doseq=True).encode(),
        "headers": [
            (name.encode(), value.encode("latin-1", "replace"))
            for name, value in {**said, **(headers or {})}.items()
        ],
        "client": None,
        "server": None,
        PRINCIPAL: principal,
        OPERATION: "none",
    }
