"""How a function becomes a handler: `@pool.task`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, TypeVar, overload

from grns.errors import InvalidInputError
from grns.model import subjects
from grns.model.retry import Backoff
from grns.model.unique import Unique
from grns.worker.context import Context
from grns.worker.follow_up import FollowUps
from grns.worker.handler import Errors, Handler

if TYPE_CHECKING:
    from grns.worker.pool import Pool

PayloadT = TypeVar("PayloadT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Registration:
    """What `pool.task` is: it registers a function, or takes options and registers the function below it."""

    pool: Pool
    task_type: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @overload
    def __call__(self, function: Callable[[], Awaitable[ResultT]], /) -> Handler[None, ResultT]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[[Context], Awaitable[ResultT]], /
    ) -> Handler[None, ResultT]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, PayloadT, ...], Awaitable[ResultT]], /
    ) -> Handler[PayloadT, ResultT]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[PayloadT, ...], Awaitable[ResultT]], /
    ) -> Handler[PayloadT, ResultT]: ...
    @overload
    def __call__(self, function: Callable[[], ResultT], /) -> Handler[None, ResultT]: ...
    @overload
    def __call__(self, function: Callable[[Context], ResultT], /) -> Handler[None, ResultT]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, PayloadT, ...], ResultT], /
    ) -> Handler[PayloadT, ResultT]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[PayloadT, ...], ResultT], /
    ) -> Handler[PayloadT, ResultT]: ...

    @overload
    def __call__(
        self,
        name: str | None = None,
        /,
        *,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        backoff: Backoff | None = None,
        non_retryable: Errors = (),
        retryable: Errors | None = None,
        unique: Unique | None = None,
        stall_timeout: float | timedelta | None = None,
        publish: bool = False,
        secret: Sequence[str] = (),
        secret_result: Sequence[str] = (),
        on_success: FollowUps = (),
        on_failure: FollowUps = (),
    ) -> Registration: ...

    def __call__(self, function: Any = None, /, **options: Any) -> Any:
        """Register a function, or take options."""
        if function is None or isinstance(function, str):
            if function is not None:
                subjects.token(function, name="task_type")
            return Registration(self.pool, function, options)
        if inspect.isclass(function) or not callable(function) or isinstance(function, Handler):
            kind = "class" if inspect.isclass(function) else type(function).__name__
            raise InvalidInputError(
                "bad_handler", f"{function!r}: decorate a function (def or async def), not a {kind}"
            )
        task_type = self.task_type or getattr(function, "__name__", type(function).__name__)
        return self.pool._register(function, task_type, **self.options)
