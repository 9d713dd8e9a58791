"""What stands around every request: its time, its trouble, and headers that each answer has."""

from __future__ import annotations

import secrets
import time
import traceback

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from grns.api.answer import ProblemAnswer
from grns.api.route import BEGAN_AT, OPERATION
from grns.model import problem
from grns.telemetry.service_signals import RequestAnswered, RequestCrashed
from grns.telemetry.signal import Emit

_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


class SecurityHeaders:
    """Answers with a problem where a bug has ended a request, and tells what became of each."""

    def __init__(self, app: ASGIApp, *, emit: Emit) -> None:
        self._app = app
        self._emit = emit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_at, status = time.monotonic(), 0
        scope[BEGAN_AT] = began_at

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        try:
            await self._app(scope, receive, note)
        except Exception as error:
            trace_id = secrets.token_hex(16)
            self._emit(RequestCrashed(_operation(scope), trace_id, traceback.format_exc()))
            if status:
                raise  # half of an answer is sent: its reader must see that it is not whole
            await ProblemAnswer(problem.of(error), trace_id=trace_id)(scope, receive, note)
        finally:
            seconds = time.monotonic() - began_at
            self._emit(RequestAnswered(_operation(scope), scope["method"], status, seconds))


def _operation(scope: Scope) -> str:
    operation: str = scope.get(OPERATION, "none")
    return operation
