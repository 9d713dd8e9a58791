"""What stands around every page: headers that no page goes without, its time, and its trouble."""

from __future__ import annotations

import secrets
import time
import traceback
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from grns.api.route import OPERATION
from grns.telemetry.service_signals import RequestAnswered, RequestCrashed
from grns.telemetry.signal import Emit

# Nothing from elsewhere, nothing inline, and nobody around it.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_NOT_KEPT = (b"cache-control", b"no-store")

Apology = Callable[[Request, str], Awaitable[Response]]


class PageSecurityHeaders:
    """Answers with an apology where a bug has ended a request, and tells what became of each."""

    def __init__(self, app: ASGIApp, *, emit: Emit, apology: Apology) -> None:
        self._app = app
        self._emit = emit
        self._apology = apology

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        began_at, status = time.monotonic(), 0

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _guarded(message.get("headers", ()))
            await send(message)

        try:
            await self._app(scope, receive, note)
        except Exception:
            trace_id = secrets.token_hex(16)
            self._emit(RequestCrashed(_operation(scope), trace_id, traceback.format_exc()))
            if status:
                raise  # half of a page is out: whoever reads it is to see that it is not whole
            answer = await self._apology(Request(scope, receive), trace_id)
            await answer(scope, receive, note)
        finally:
            seconds = time.monotonic() - began_at
            self._emit(RequestAnswered(_operation(scope), scope["method"], status, seconds))


def _guarded(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    ours = {name for name, _ in _HEADERS}
    kept = [(name, value) for name, value in headers if name.lower() not in ours]
    is_said = any(name.lower() == _NOT_KEPT[0] for name, _ in kept)
    return [*kept, *_HEADERS, *(() if is_said else (_NOT_KEPT,))]


def _operation(scope: Scope) -> str:
    operation: str = scope.get(OPERATION, "web_none")
    return operation
