"""The API as one ASGI app: all routes, and what becomes of errors."""

from __future__ import annotations

from http import HTTPStatus
from importlib.metadata import version
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from grns.api import (
    agent,
    blob,
    budget,
    coordinator,
    count,
    doctor,
    event,
    explain,
    export,
    issue,
    key,
    limit,
    mail,
    message,
    operation,
    output,
    pool,
    probe,
    progress,
    question,
    queue,
    saved_filter,
    schedule,
    step,
    submit,
    task,
    task_log,
    task_type,
    usage,
    webhook,
    worker_step,
    workflow,
)
from grns.api.answer import ProblemAnswer
from grns.api.context import ApiContext
from grns.api.document import completed
from grns.api.route import OPERATION, ApiRoute
from grns.api.security_headers import SecurityHeaders
from grns.errors import GrnsError, InvalidInputError, UnavailableError
from grns.model import problem
from grns.model.problem import Problem
from grns.telemetry.service_signals import RequestFailed

# A path that another one would fit, too, stands before it.
_NOUNS = (
    submit,
    task,
    task_log,
    task_type,
    usage,
    budget,
    step,
    queue,
    agent,
    mail,
    blob,
    progress,
    output,
    worker_step,
    question,
    explain,
    message,
    export,
    issue,
    operation,
    pool,
    schedule,
    limit,
    event,
    count,
    saved_filter,
    webhook,
    workflow,
    key,
    doctor,
    coordinator,
    probe,
)
ROUTES = tuple(route for noun in _NOUNS for route in noun.routes.routes if isinstance(route, ApiRoute))

_DESCRIPTION = (
    "Tasks, their dead letters and their events. Show a key as `Authorization: Bearer grns_…`; as long as"
    " there is none, the bootstrap token that the API printed at its start creates the first. What cannot be"
    " done is answered with a problem (RFC 9457), whose `code` is stable."
)
_ROUTE_CODES = {HTTPStatus.NOT_FOUND: "not_found", HTTPStatus.METHOD_NOT_ALLOWED: "bad_method"}
_NO_ROUTE = "there is no such route: /api/v1/openapi.json lists all"
_NO_METHOD = "this route does not take that method: /api/v1/openapi.json lists what it takes"
_CODES = {"limit": "bad_limit", "cursor": "bad_cursor", "filter": "bad_filter"}


class _Api(FastAPI):
    """FastAPI, with a document that tells what it cannot know."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            self.openapi_schema = completed(super().openapi(), ROUTES)
        return self.openapi_schema


def make_api(context: ApiContext) -> FastAPI:
    """Return the app that answers requests with what is on a desk."""
    api = bare()
    api.state.context = context
    api.add_middleware(SecurityHeaders, emit=context.emit)
    return api


def bare() -> FastAPI:
    """Return the app without a desk: it answers nothing, and has its document."""
    api = _Api(
        title="grns",
        version=version("grns"),
        description=_DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            GrnsError: _refuse,
            RequestValidationError: _refuse_parameter,
            HTTPException: _refuse_route,
        },
    )
    # Not `include_router`, which would make each route again: 0.1 s.
    api.router.routes.extend(ROUTES)
    return api


async def _refuse(request: Request, error: Exception) -> Response:
    said = problem.of(error)
    if said.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        raise error  # a bug: it goes to the log
    if isinstance(error, UnavailableError):
        context: ApiContext = request.app.state.context
        context.emit(RequestFailed(request.scope.get(OPERATION, "none"), str(error)))
    return ProblemAnswer(said)


async def _refuse_parameter(_request: Request, error: Exception) -> Response:
    """Say which parameter of a path, query or header is wrong, and repeat nothing of it."""
    first = cast(RequestValidationError, error).errors()[0]
    name = ascii(str(first["loc"][1]))[1:-1][:100]  # behind where it was looked for
    why = ascii(first["msg"])[1:-1]
    said = InvalidInputError(_CODES.get(name, "bad_parameter"), f"{name}: {why}"[:300])
    return ProblemAnswer(problem.of(said))


async def _refuse_route(_request: Request, error: Exception) -> Response:
    found = cast(HTTPException, error)
    status = HTTPStatus(found.status_code)
    detail = _NO_METHOD if status is HTTPStatus.METHOD_NOT_ALLOWED else _NO_ROUTE
    code = _ROUTE_CODES.get(status, "bad_request")
    said = Problem("about:blank", status.phrase, status.value, code, detail)
    answer = ProblemAnswer(said)
    for name, value in (found.headers or {}).items():
        answer.headers[name] = value
    return answer
