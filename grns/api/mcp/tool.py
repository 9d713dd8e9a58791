"""A tool: a function that makes requests to the API, with checked arguments and a scope."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from grns.access.principals import Scope
from grns.api.in_process import ApiProblemError, Query
from grns.errors import OutcomeUnknownError

_PAUSE_SECONDS = 1.0

ArgumentsT = TypeVar("ArgumentsT", bound=BaseModel)


class ApiCaller(Protocol):
    """The API, with the key of who asks. Raises ApiProblemError."""

    async def call(
        self, method: str, path: str, *, query: Query | None = None, body: Mapping[str, Any] | None = None
    ) -> Any:
        """Send one request, and return the answer's JSON."""


class Arguments(BaseModel):
    """Arguments of a tool. Unknown ones are refused, so that a model learns of its mistake."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a key with `scope` may call.

    `is_read_only` and `is_destructive` are hints, by which hosts ask their user or do not. A long answer is
    cut unless `is_whole`.
    """

    name: str
    description: str
    scope: Scope
    arguments: type[BaseModel]
    function: Callable[[ApiCaller, Any], Awaitable[Any]]
    is_read_only: bool = False
    is_destructive: bool = False
    is_whole: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        schema = self.arguments.model_json_schema()
        schema.pop("title", None)
        schema.pop("description", None)
        return schema


TOOLS: dict[str, Tool] = {}
"""All tools, by their names."""


async def post_once(api: ApiCaller, path: str, body: Mapping[str, Any]) -> Any:
    """Send what has an id or a key of its own, and so is done once; again if no one knows whether it was."""
    try:
        return await api.call("POST", path, body=body)
    except OutcomeUnknownError:
        pass
    except ApiProblemError as error:
        if error.problem.code != "outcome_unknown":
            raise
    await asyncio.sleep(_PAUSE_SECONDS)
    return await api.call("POST", path, body=body)


def tool(
    scope: Scope, *, is_read_only: bool = False, is_destructive: bool = False, is_whole: bool = False
) -> Callable[
    [Callable[[ApiCaller, ArgumentsT], Awaitable[Any]]], Callable[[ApiCaller, ArgumentsT], Awaitable[Any]]
]:
    """Make a tool of a function, with its name, its docstring and its second parameter."""

    def register(
        function: Callable[[ApiCaller, ArgumentsT], Awaitable[Any]],
    ) -> Callable[[ApiCaller, ArgumentsT], Awaitable[Any]]:
        arguments = list(inspect.signature(function, eval_str=True).parameters.values())[1].annotation
        name, told = function.__name__, inspect.getdoc(function) or ""
        TOOLS[name] = Tool(name, told, scope, arguments, function, is_read_only, is_destructive, is_whole)
        return function

    return register
