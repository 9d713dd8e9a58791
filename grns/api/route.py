"""Routes, as the files of nouns declare them: what they take, what they answer, and who may use them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from fastapi import Depends, Request
from fastapi.params import Query
from pydantic import BaseModel
from starlette.responses import Response

from grns.access.principals import Scope
from grns.api.access import scope_of
from grns.api.answer import PROBLEM_TYPE
from grns.errors import InvalidInputError

PREFIX = "/api/v1"
# Where the middleware finds which route it was.
OPERATION = "grns.operation"
_WORKSPACE = "workspace"

Endpoint = Callable[..., Awaitable[Response]]


@dataclass(frozen=True)
class Route:
    """One route. Its endpoint's name is its operation id, its docstring what the document says of it.

    `answers` is what the body of a good answer is like, `takes` that of the request; `others` are good
    answers besides. Without a scope anybody may use it.
    """

    method: str
    path: str
    endpoint: Endpoint
    tag: str
    answers: Any
    takes: type[BaseModel] | None
    status: int
    others: Mapping[int | str, dict[str, Any]]
    is_open: bool

    @property
    def name(self) -> str:
        """The operation's id."""
        return self.endpoint.__name__

    @property
    def scope(self) -> Scope | None:
        """What its users need to have."""
        return scope_of(self.endpoint)

    def entry(self) -> Any:
        """Return the dependency that every request of this route passes first."""
        allowed = {*_queries(self.endpoint), _WORKSPACE}

        async def enter(request: Request) -> None:
            request.scope[OPERATION] = self.name
            unknown = sorted(request.query_params.keys() - allowed)
            if unknown:
                raise InvalidInputError(
                    "bad_parameter", f"{ascii(unknown[0])[1:-1][:100]}: there is no such parameter"
                )

        return Depends(enter)

    def document(self) -> dict[str, Any]:
        """Return what the OpenAPI document says of it and cannot know from its endpoint."""
        said: dict[str, Any] = {"security": [] if self.scope is None else [{"key": [self.scope]}]}
        if self.takes is not None:
            schema = {"$ref": f"#/components/schemas/{self.takes.__name__}"}
            said["requestBody"] = {
                "required": any(one.is_required() for one in self.takes.model_fields.values()),
                "content": {"application/json": {"schema": schema}},
            }
        return said

    def responses(self) -> dict[int | str, dict[str, Any]]:
        """Return what it answers besides."""
        problem = {
            "description": "What could not be done, and why",
            "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
        }
        return {**self.others, "default": problem}


def _queries(endpoint: Endpoint) -> set[str]:
    """Return the names of the parameters that an endpoint reads from the query."""
    hints = get_type_hints(endpoint, include_extras=True)
    found = set()
    for name in inspect.signature(endpoint).parameters:
        for declared in getattr(hints[name], "__metadata__", ()):
            if isinstance(declared, Query):
                found.add(declared.alias or name)
    return found


@dataclass
class Routes:
    """The routes of one noun, collected by its decorators."""

    tag: str
    prefix: str = PREFIX
    found: list[Route] = field(default_factory=list)

    def get(self, path: str, **said: Any) -> Callable[[Endpoint], Endpoint]:
        """Declare what looks."""
        return self._declare("GET", path, **said)

    def post(self, path: str, **said: Any) -> Callable[[Endpoint], Endpoint]:
        """Declare what makes or does something."""
        return self._declare("POST", path, **said)

    def put(self, path: str, **said: Any) -> Callable[[Endpoint], Endpoint]:
        """Declare what puts something in the place of what there was."""
        return self._declare("PUT", path, **said)

    def patch(self, path: str, **said: Any) -> Callable[[Endpoint], Endpoint]:
        """Declare what changes something."""
        return self._declare("PATCH", path, **said)

    def delete(self, path: str, **said: Any) -> Callable[[Endpoint], Endpoint]:
        """Declare what removes something."""
        return self._declare("DELETE", path, **said)

    def _declare(
        self,
        method: str,
        path: str,
        *,
        answers: Any,
        takes: type[BaseModel] | None = None,
        status: int = 200,
        others: Mapping[int | str, dict[str, Any]] | None = None,
        is_open: bool = False,
    ) -> Callable[[Endpoint], Endpoint]:
        def keep(endpoint: Endpoint) -> Endpoint:
            self.found.append(
                Route(
                    method,
                    self.prefix + path,
                    endpoint,
                    self.tag,
                    answers,
                    takes,
                    status,
                    others or {},
                    is_open,
                )
            )
            return endpoint

        return keep
