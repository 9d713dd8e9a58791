"""A pool: the handlers of one agent type."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter

from grns.errors import InvalidInputError
from grns.model import subjects
from grns.model.retry import Backoff
from grns.model.submission import MAX_ATTEMPTS_LIMIT

HandlerFunction = TypeVar("HandlerFunction", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler of a task type with its settings."""

    task_type: str
    function: Callable[..., Any]
    is_async: bool
    payload_model: TypeAdapter[Any] | None
    takes_payload: bool
    max_attempts: int | None
    timeout_seconds: float | None
    backoff: Backoff


class Pool:
    """The handlers of one pool, which its workers run: what Celery and Oban call a queue.

    Args:
        agent_type: name of the pool, 1 to 64 characters of `A-Za-z0-9_-`.

    Example:
        pool = grns.Pool("worker")

        @pool.task("fetch_page", max_attempts=5, timeout_seconds=30)
        async def fetch_page(ctx: grns.Context, page: Page) -> dict: ...

    Run it with `grns worker start MODULE:pool`.
    """

    def __init__(self, agent_type: str = "worker") -> None:
        self.agent_type = subjects.agent_type(agent_type)
        self._handlers: dict[str, Handler] = {}

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Handlers by task type."""
        return self._handlers

    def task(
        self,
        task_type: str,
        *,
        max_attempts: int | None = None,
        timeout_seconds: float | None = None,
        backoff: Backoff | None = None,
    ) -> Callable[[HandlerFunction], HandlerFunction]:
        """Register a function as the handler of a task type.

        The function takes the `Context` and, as an optional second parameter, the payload: a dict, or the
        type of its annotation, which pydantic validates. A payload that does not fit ends the task as
        `failed`. Coroutine functions run on the event loop, other functions in a thread. The returned JSON
        value is the task's result.

        Args:
            task_type: name of the task type, 1 to 64 characters of `A-Za-z0-9_-`.
            max_attempts: maximum attempts, if the submission does not set it. Defaults to 3.
            timeout_seconds: maximum duration of one attempt. Defaults to no limit.
            backoff: delays between attempts. Defaults to `Backoff()`.

        Raises:
            InvalidInputError: an argument is invalid, the signature does not fit, or the type has a handler.
        """
        subjects.token(task_type, name="task_type")
        _check_bounds(max_attempts, timeout_seconds)

        def register(function: HandlerFunction) -> HandlerFunction:
            if task_type in self._handlers:
                raise InvalidInputError(
                    "duplicate_handler", f"the task type {task_type} has a handler already"
                )
            self._handlers[task_type] = Handler(
                task_type,
                function,
                inspect.iscoroutinefunction(function),
                *_payload_of(function),
                max_attempts,
                timeout_seconds,
                backoff or Backoff(),
            )
            return function

        return register


def _check_bounds(max_attempts: int | None, timeout_seconds: float | None) -> None:
    if max_attempts is not None and not (
        type(max_attempts) is int and 1 <= max_attempts <= MAX_ATTEMPTS_LIMIT
    ):
        raise InvalidInputError(
            "bad_handler", f"max_attempts must be 1 to {MAX_ATTEMPTS_LIMIT}, not {max_attempts}"
        )
    if timeout_seconds is not None and not (type(timeout_seconds) in (int, float) and timeout_seconds > 0):
        raise InvalidInputError("bad_handler", f"timeout_seconds must be more than 0, not {timeout_seconds}")


def _payload_of(function: Callable[..., Any]) -> tuple[TypeAdapter[Any] | None, bool]:
    """Return how to check the payload (None: a plain dict), and whether the function takes one."""
    parameters = list(inspect.signature(function).parameters.values())
    if not 1 <= len(parameters) <= 2:
        raise InvalidInputError(
            "bad_handler",
            f"{function.__qualname__} must take (task) or (task, payload), not {len(parameters)}",
        )
    if len(parameters) == 1:
        return None, False
    try:
        annotation = get_type_hints(function).get(parameters[1].name, dict)
    except NameError as error:
        raise InvalidInputError(
            "bad_handler", f"the payload's annotation of {function.__qualname__} cannot be resolved: {error}"
        ) from error
    if annotation is dict or annotation is Any:
        return None, True
    return TypeAdapter(annotation), True
