"""What a step runs: its function, and what reads and writes the value of that."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import is_dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import TypeAdapter


async def call_step(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    named: dict[str, Any],
    *,
    in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread,
) -> Any:
    """Call a function, in a thread if it is a plain one."""
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    is_async = getattr(inner, "is_async", False)  # handlers, and methods of the context, say so
    if (
        is_async
        or inspect.iscoroutinefunction(function)
        or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  # of an object, whose class may define it
        )
    ):
        return await function(*arguments, **named)
    value = await in_thread(function, *arguments, **named)
    return await value if inspect.isawaitable(value) else value


def adapter_of(function: Callable[..., Any]) -> TypeAdapter[Any] | None:
    """Return what reads and writes the value, by the annotation of the function; None if it has none."""
    try:
        annotation = inspect.signature(function, eval_str=True).return_annotation
    except (NameError, TypeError, ValueError):
        return None
    return None if annotation in (inspect.Signature.empty, Any, None) else _adapter(annotation)


def adapter_of_value(value: Any) -> TypeAdapter[Any] | None:
    """Return what writes a model or a dataclass; None for anything else."""
    is_model = hasattr(type(value), "__pydantic_serializer__") or is_dataclass(value)
    return _adapter(type(value)) if is_model and not isinstance(value, type) else None


def _adapter(annotation: Any) -> TypeAdapter[Any] | None:
    try:
        from pydantic import PydanticSchemaGenerationError, PydanticUserError
    except ModuleNotFoundError:  # in `grns-client`: values are JSON
        return None
    try:
        try:
            return _made(annotation, repr(annotation))
        except TypeError:  # it has no hash
            return _made.__wrapped__(annotation, "")
    except (NameError, TypeError, ValueError, PydanticSchemaGenerationError, PydanticUserError):
        return None


@lru_cache(maxsize=500)
def _made(annotation: Any, _written: str) -> TypeAdapter[Any]:
    """Return the adapter of a type. Unions in another order are equal, and do not read alike."""
    from pydantic import TypeAdapter

    return TypeAdapter(annotation)
