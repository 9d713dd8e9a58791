"""A pool: the agent type it serves, and the handlers of its task types."""

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
    """What runs one task type, and how often and how long it may."""

    task_type: str
    function: Callable[..., Any]
    is_async: bool
    payload_model: TypeAdapter[Any] | None
    takes_payload: bool
    max_attempts: int | None
    timeout_seconds: float | None
    backoff: Backoff


class Pool:
    """The handlers of one agent type.

    Example:

        pool = grns.Pool("worker")

        @pool.task("fetch_page", max_attempts=5, timeout_seconds=30)
        async def fetch_page(task: grns.Context, page: Page) -> dict: ...

    Run it with `grns worker start MODULE:pool`.
    """

    def __init__(self, agent_type: str = "worker") -> None:
        self.agent_type = subjects.agent_type(agent_type)
        self._handlers: dict[str, Handler] = {}

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers, by task type."""
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

        The function takes the `Context` and, where it has a second parameter, the payload:
        as a dict, or as whatever its annotation says (checked by pydantic; a payload that
        does not fit ends the task as `failed`). A coroutine function runs on the event
        loop, any other one in a thread. What it returns becomes the task's result.

        `max_attempts` counts unless the submission says otherwise (3 where neither does);
        `timeout_seconds` bounds one attempt; `backoff` says how long to wait between them.
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
