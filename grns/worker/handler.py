"""The handler of a task type: a function with its settings."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from grns.errors import InvalidInputError
from grns.model import subjects
from grns.model.duration import LONGEST_WAIT_SECONDS, seconds_of
from grns.model.retry import Backoff
from grns.model.secret import Path, read_paths
from grns.model.submission import MAX_ATTEMPTS_LIMIT
from grns.model.unique import Unique
from grns.worker.follow_up import FollowUp, FollowUpOutcome, FollowUps, follow_ups
from grns.worker.progress import LEAST_STALL_SECONDS
from grns.worker.signature import Signature

if TYPE_CHECKING:
    from grns import sync
    from grns.client.client import Client
    from grns.client.handle import TaskHandle
    from grns.worker.pool import Pool

Errors = tuple[type[BaseException], ...]

# What Celery, Dramatiq and taskiq call on a task, and its place here.
_ELSEWHERE = {
    "delay": "client.submit({}, payload)",
    "apply_async": "client.submit({}, payload, delay=…)",
    "send": "client.submit({}, payload)",
    "send_with_options": "client.submit({}, payload, delay=…)",
    "kiq": "client.submit({}, payload)",
    "retry": "raise grns.Retry(after=…) in the handler",
    "s": "client.submit({}, payload) for each task",
    "si": "client.submit({}, payload) for each task",
    "signature": "client.submit({}, payload) for each task",
    "subtask": "client.submit({}, payload) for each task",
    "delay_on_commit": "grns.integrations.django.submit({}, payload)",
    "apply": "{}(payload), or grns.testing.eager()",
    "AsyncResult": "client.handle(id, {})",
    "request": "a parameter `ctx: grns.Context` of the function",
}


# Options of other frameworks, and what to write instead of them.
_OPTIONS_ELSEWHERE = {
    "bind": "a parameter `ctx: grns.Context` of the function",
    "max_retries": "max_attempts=, which counts the first one, too",
    "autoretry_for": "retryable=(…); without it every exception is retried but those of non_retryable=",
    "retry_backoff": "backoff=grns.Backoff(…)",
    "default_retry_delay": "backoff=grns.Backoff(base_seconds=…)",
    "retry_kwargs": "max_attempts=, backoff=",
    "time_limit": "timeout=",
    "soft_time_limit": "timeout=",
    "rate_limit": 'pool.limit("NAME", rate="10/m") above the handler',
    "queue": "a pool of its own",
    "actor_name": "the name as the first argument",
    "name": "the name as the first argument",
    "acks_late": "nothing: it is always so",
}


@dataclass(frozen=True, slots=True)
class HandlerSettings:
    """What a pool or a handler sets for attempts; None leaves it to the pool, or to the default."""

    max_attempts: int | None = None
    timeout_seconds: float | None = None
    backoff: Backoff | None = None
    non_retryable: Errors = ()
    retryable: Errors | None = None
    unique: Unique | None = None
    stall_seconds: float | None = None
    is_published: bool = False
    secret: tuple[Path, ...] = ()
    secret_result: tuple[Path, ...] = ()
    on_success: tuple[FollowUp, ...] = ()
    on_failure: tuple[FollowUp, ...] = ()

    def over(self, outer: HandlerSettings) -> HandlerSettings:
        """Return these settings, completed by those of a pool around."""
        return HandlerSettings(
            outer.max_attempts if self.max_attempts is None else self.max_attempts,
            outer.timeout_seconds if self.timeout_seconds is None else self.timeout_seconds,
            self.backoff or outer.backoff,
            (*outer.non_retryable, *self.non_retryable),
            outer.retryable if self.retryable is None else self.retryable,
            self.unique,
            self.stall_seconds,
            self.is_published,
            self.secret,
            self.secret_result,
            self.on_success,
            self.on_failure,
        )


def checked_settings(
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
    **unknown: Any,
) -> HandlerSettings:
    """Return settings. Raises InvalidInputError (`bad_handler`) that names the wrong one."""
    for name in unknown:
        hint = _OPTIONS_ELSEWHERE.get(name)
        instead = f": write {hint}" if hint else ""
        raise InvalidInputError("bad_handler", f"{name!r} is no option of a handler{instead}")
    if backoff is not None and not isinstance(backoff, Backoff):
        raise InvalidInputError(
            "bad_handler",
            f"backoff must be a grns.Backoff, such as grns.Backoff(base_seconds=5), not {backoff!r}",
        )
    if unique is not None and not isinstance(unique, Unique):
        raise InvalidInputError(
            "bad_handler", f"unique must be a grns.Unique, such as grns.Unique('doc_id'), not {unique!r}"
        )
    return HandlerSettings(
        _checked_attempts(max_attempts),
        _checked_timeout(timeout),
        backoff,
        _checked_errors("non_retryable", non_retryable),
        None if retryable is None else _checked_errors("retryable", retryable),
        unique,
        _checked_stall(stall_timeout),
        publish is True,
        _checked_paths(secret),
        _checked_paths(secret_result),
        follow_ups("on_success", on_success),
        follow_ups("on_failure", on_failure),
    )


PayloadT = TypeVar("PayloadT", contravariant=True)
ResultT = TypeVar("ResultT", covariant=True)


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
        settings: HandlerSettings,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.pool = pool
        self.task_type = subjects.token(task_type, name="task_type")
        inner = inspect.unwrap(function)
        if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
            raise InvalidInputError(
                "bad_handler", f"{task_type}: a handler returns its result; this one yields"
            )
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  # of an object, whose class may define it
        )
        self.call_signature = Signature(function)
        self.unique = settings.unique
        if self.unique is not None and (field := self.call_signature.lacks(self.unique.key)) is not None:
            raise InvalidInputError("bad_handler", f"unique: the payload of {task_type} has no field {field}")
        for path in settings.secret:
            if (field := self.call_signature.lacks(path[0])) is not None and field != "*":
                raise InvalidInputError(
                    "bad_handler", f"secret: the payload of {task_type} has no field {field}"
                )
        self.is_published = settings.is_published
        self._settings = settings
        self.settle()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function."""
        return self.function(*arguments, **named)

    def __repr__(self) -> str:
        return f"<Handler {self.task_type}>"

    def settle(self) -> None:
        """Take what the handler does not set from its pool, and from those that include it."""
        settings = self._settings
        for pool in self.pool.lineage():
            settings = settings.over(pool.settings)
        self.max_attempts = settings.max_attempts
        self.timeout_seconds = None if settings.timeout_seconds == math.inf else settings.timeout_seconds
        self.backoff = settings.backoff or Backoff()
        self.non_retryable = settings.non_retryable
        self.retryable = settings.retryable
        self.stall_seconds = settings.stall_seconds

    if not TYPE_CHECKING:  # or a type checker would accept any name

        def __getattr__(self, name: str) -> Any:
            """Say what is called otherwise here than in other frameworks."""
            hint = _ELSEWHERE.get(name)
            raise AttributeError(
                f"a handler has no {name!r}" + (f": write {hint.format(self.task_type)}" if hint else ""),
                name=name,
                obj=self,
            )

    @cached_property
    def secret_paths(self) -> tuple[Path, ...]:
        """The places of the payload that are secret: those of `secret=`, and those of its annotation."""
        return tuple(dict.fromkeys((*self._settings.secret, *self.call_signature.secret_paths)))

    @cached_property
    def secret_result_paths(self) -> tuple[Path, ...]:
        """The places of the result that are secret: of `secret_result=`, and of its annotation."""
        return tuple(dict.fromkeys((*self._settings.secret_result, *self.call_signature.secret_result_paths)))

    @property
    def follow_ups(self) -> Mapping[FollowUpOutcome, tuple[FollowUp, ...]]:
        """The follow-ups of each outcome that has some."""
        said: dict[FollowUpOutcome, tuple[FollowUp, ...]] = {
            "success": self._settings.on_success,
            "failure": self._settings.on_failure,
        }
        return {outcome: ones for outcome, ones in said.items() if ones}

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


def _checked_errors(name: str, errors: Errors) -> Errors:
    """Return classes of exceptions. Raises InvalidInputError (`bad_handler`) if they are something else."""
    if isinstance(errors, tuple) and all(
        isinstance(one, type) and issubclass(one, BaseException) for one in errors
    ):
        return errors
    raise InvalidInputError("bad_handler", f"{name} must be a tuple of exception classes, not {errors!r}")


def _checked_paths(secret: Sequence[str]) -> tuple[Path, ...]:
    if isinstance(secret, str) or not all(isinstance(path, str) for path in secret):
        raise InvalidInputError("bad_handler", f"secret is a list of paths, as ['auth.*'], not {secret!r}")
    return read_paths(secret)


def _checked_attempts(most: int | None) -> int | None:
    if most is None or (type(most) is int and 1 <= most <= MAX_ATTEMPTS_LIMIT):
        return most
    raise InvalidInputError("bad_handler", f"max_attempts must be 1 to {MAX_ATTEMPTS_LIMIT}, not {most}")


def _checked_stall(timeout: float | timedelta | None) -> float | None:
    if timeout is None or timeout == math.inf:
        return None
    seconds = seconds_of(timeout)
    if seconds is None or not LEAST_STALL_SECONDS <= seconds <= LONGEST_WAIT_SECONDS:
        raise InvalidInputError(
            "bad_handler",
            f"stall_timeout is {LEAST_STALL_SECONDS:.0f} seconds to 366 days, not {timeout!r}",
        )
    return float(seconds)


def _checked_timeout(timeout: float | timedelta | None) -> float | None:
    if timeout == math.inf:
        return math.inf
    seconds = None if timeout is None else seconds_of(timeout)
    if timeout is None or (seconds is not None and seconds > 0):
        return seconds
    raise InvalidInputError("bad_handler", f"timeout must be more than 0 seconds, not {timeout}")
