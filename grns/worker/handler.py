"""The handler of a task type: a function with its settings."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from grns.errors import InvalidInputError
from grns.model import subjects
from grns.model.duration import seconds_of
from grns.model.retry import Backoff
from grns.model.submission import MAX_ATTEMPTS_LIMIT
from grns.worker.signature import Signature

if TYPE_CHECKING:
    from grns import sync
    from grns.client.client import Client
    from grns.client.handle import TaskHandle
    from grns.worker.pool import Pool

PayloadT = TypeVar("PayloadT", contravariant=True)
ResultT = TypeVar("ResultT", covariant=True)
Errors = tuple[type[BaseException], ...]


class Handler(Generic[PayloadT, ResultT]):
    """The handler of a task type, which `@pool.task` makes of a function. Call it as you would the function.

    Attributes:
        task_type: name of the task type.
        pool: the pool that it was registered in.
        function: the function itself.

    Example:
        @pool.task
        async def fetch_page(page: Page, ctx: grns.Context) -> Result: ...

        assert await fetch_page(Page(url="https://example.org"), testing.context()) == Result(...)
    """

    def __init__(
        self,
        function: Callable[..., Any],
        pool: Pool,
        *,
        task_type: str,
        max_attempts: int | None,
        timeout: float | timedelta | None,
        backoff: Backoff,
        non_retryable: Errors,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.pool = pool
        self.task_type = subjects.token(task_type, name="task_type")
        self.max_attempts = _checked_attempts(max_attempts)
        self.timeout_seconds = _checked_timeout(timeout)
        self.backoff = backoff
        self.non_retryable = checked_errors(non_retryable)
        self.is_async = inspect.iscoroutinefunction(function)
        self.signature = Signature(function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function."""
        return self.function(*arguments, **named)

    def __repr__(self) -> str:
        return f"<Handler {self.task_type}>"

    @property
    def agent_type(self) -> str:
        """Name of the pool that tasks of this type go to."""
        return self.pool.agent_type

    @overload
    def submit(
        self, client: Client, payload: PayloadT | None = None, **options: Any
    ) -> Coroutine[Any, Any, TaskHandle[ResultT]]: ...
    @overload
    def submit(
        self, client: sync.Client, payload: PayloadT | None = None, **options: Any
    ) -> sync.TaskHandle[ResultT]: ...

    def submit(self, client: Any, payload: Any = None, **options: Any) -> Any:
        """Submit a task of this type. Options, errors and answer are those of `Client.submit`.

        Example:
            handle = await fetch_page.submit(client, Page(url="https://example.org"), priority=1)
        """
        return client.submit(self, payload, **options)


def checked_errors(errors: Errors) -> Errors:
    """Return classes of exceptions. Raises InvalidInputError (`bad_handler`) if they are something else."""
    if isinstance(errors, tuple) and all(
        isinstance(one, type) and issubclass(one, BaseException) for one in errors
    ):
        return errors
    raise InvalidInputError(
        "bad_handler", f"non_retryable must be a tuple of exception classes, not {errors!r}"
    )


def _checked_attempts(most: int | None) -> int | None:
    if most is None or (type(most) is int and 1 <= most <= MAX_ATTEMPTS_LIMIT):
        return most
    raise InvalidInputError("bad_handler", f"max_attempts must be 1 to {MAX_ATTEMPTS_LIMIT}, not {most}")


def _checked_timeout(timeout: float | timedelta | None) -> float | None:
    seconds = None if timeout is None else seconds_of(timeout)
    if timeout is None or (seconds is not None and seconds > 0):
        return seconds
    raise InvalidInputError("bad_handler", f"timeout must be more than 0 seconds, not {timeout}")
