"""Methods for `async def` handlers, which say so when a plain one calls them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from grns.errors import InvalidInputError

P = ParamSpec("P")
AnswerT = TypeVar("AnswerT")


def check_async(name: str, instead: str) -> None:
    """Raise InvalidInputError (`bad_handler`) in a thread without an event loop, as of a plain handler."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidInputError("bad_handler", f"{name} is for `async def` handlers: {instead}") from None


def _mark(function: Callable[..., Any]) -> None:
    """Let `iscoroutinefunction` be true of a function, for mocks of users."""
    if hasattr(inspect, "markcoroutinefunction"):
        inspect.markcoroutinefunction(function)
    else:  # before Python 3.12, of which only asyncio asks
        function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]


def async_only(
    method: Callable[P, Coroutine[Any, Any, AnswerT]],
) -> Callable[P, Coroutine[Any, Any, AnswerT]]:
    """Let a method raise when a plain handler calls it, which would otherwise get a coroutine."""
    name = f"ctx.{method.__name__}()"

    @wraps(method)
    def checked(*arguments: P.args, **named: P.kwargs) -> Coroutine[Any, Any, AnswerT]:
        check_async(name, f"write `await {name}` in one")
        return method(*arguments, **named)

    checked.is_async = True  # type: ignore[attr-defined]  # for what calls it, such as `ctx.step`
    _mark(checked)
    return checked
