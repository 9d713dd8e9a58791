"""The routers of the API: FastAPI's own, and what all routes here have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response

from grns.access.principals import Scope
from grns.api.access import scopes_of
from grns.api.answer import PROBLEM_TYPE
from grns.api.request import body_of
from grns.errors import InvalidInputError

PREFIX = "/api/v1"
# Where the middleware finds which route it was.
OPERATION = "grns.operation"
# Where it is when the request came, by the clock `time.monotonic`.
BEGAN_AT = "grns.began_at"
_PROBLEM = {
    "description": "What could not be done, and why",
    "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
}


class ApiRoute(APIRoute):
    """One route. The endpoint's name is the operation id, its docstring describes it in the document.

    It refuses query parameters that it does not read.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        prose = " ".join((endpoint.__doc__ or "").split())
        self.needs: tuple[Scope, ...] = scopes_of(endpoint)
        self.takes: type[BaseModel] | None = body_of(endpoint)
        extra = {
            **(options.get("openapi_extra") or {}),
            "security": [{"key": [scope]} for scope in self.needs],
        }
        if self.takes is not None:
            schema = {"$ref": f"#/components/schemas/{self.takes.__name__}"}
            extra["requestBody"] = {
                "required": any(one.is_required() for one in self.takes.model_fields.values()),
                "content": {"application/json": {"schema": schema}},
            }
        common = {
            "name": endpoint.__name__,
            "operation_id": endpoint.__name__,
            "summary": prose.partition(". ")[0].removesuffix("."),
            "description": prose,
            "responses": {**(options.get("responses") or {}), "default": _PROBLEM},
            "openapi_extra": extra,
        }
        super().__init__(path, endpoint, **{**options, **common})

    @property
    def method(self) -> str:
        """The only method that it takes."""
        return min(self.methods or ())

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Return what answers a request."""
        handle = super().get_route_handler()
        known = _query_names(self.dependant)

        async def check_and_handle(request: Request) -> Response:
            request.scope[OPERATION] = self.name
            unknown = sorted(request.query_params.keys() - known)
            if unknown:
                raise InvalidInputError(
                    "bad_parameter", f"{ascii(unknown[0])[1:-1][:100]}: there is no such parameter"
                )
            return await handle(request)

        return check_and_handle


def _query_names(dependant: Dependant) -> set[str]:
    names = {field.alias for field in dependant.query_params}
    return names.union(*map(_query_names, dependant.dependencies))


def router(tag: str, *, prefix: str = PREFIX) -> APIRouter:
    """Return the router of one noun."""
    return APIRouter(prefix=prefix, tags=[tag], route_class=ApiRoute)
