"""A pool: the handlers that its workers run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, TypeVar

from grns.errors import InvalidInputError
from grns.model import subjects
from grns.model.duration import seconds_of
from grns.model.retry import Backoff
from grns.schedules.ticks import CatchUp, Overlap
from grns.worker.declared import DeclaredLimit, DeclaredSchedule
from grns.worker.handler import Errors, Handler, checked_settings
from grns.worker.hooks import Hooks
from grns.worker.registration import Registration

Hook = TypeVar("Hook", bound=Callable[..., Any])
HandlerT = TypeVar("HandlerT", bound=Handler[Any, Any])
_DAY = timedelta(days=1)
Lifespan = Callable[["Pool"], AbstractAsyncContextManager[Any]]


class Pool:
    """The handlers of one pool, which its workers run: what Celery and Oban call a queue.

    Args:
        name: name of the pool, 1 to 64 characters of `A-Za-z0-9_-`; None for one that another pool includes.
        lifespan: function that takes the pool and returns an asynchronous context manager. Each worker
            process enters it before its first task and leaves it after its last; its value is `ctx.state`.
        non_retryable: exceptions that end a task as `failed`: another attempt would not help.
        retryable: exceptions that are retried; all others then end a task as `failed`, `TimeoutError` after
            a timeout included. Defaults to every exception.
        max_attempts: maximum attempts of its tasks, unless handler or submission set it. Defaults to 3.
        timeout: maximum duration of one attempt, in seconds or as a `timedelta`. Defaults to no limit.
        backoff: delays between attempts. Defaults to `Backoff()`.

    Raises:
        InvalidInputError: the name or a default is invalid.

    Example:
        @asynccontextmanager
        async def lifespan(pool: grns.Pool):
            async with httpx.AsyncClient() as http:
                yield http

        pool = grns.Pool("shop", lifespan=lifespan, non_retryable=(ValueError,))

        @pool.task(max_attempts=5, timeout=timedelta(seconds=30))
        async def fetch_page(page: Page, ctx: grns.Context) -> dict:
            return {"status": (await ctx.state.get(page.url)).status_code}

    Run it with `grns worker start MODULE:pool`.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        lifespan: Lifespan | None = None,
        non_retryable: Errors = (),
        retryable: Errors | None = None,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self.name = None if name is None else subjects.agent_type(name)
        self.lifespan = lifespan
        self.hooks = Hooks()
        self.parent: Pool | None = None
        self.settings = checked_settings(
            max_attempts=max_attempts,
            timeout=timeout,
            backoff=backoff,
            non_retryable=non_retryable,
            retryable=retryable,
        )
        self._handlers: dict[str, Handler[Any, Any]] = {}
        self._included: list[Pool] = []
        self._schedules: list[DeclaredSchedule] = []
        self._limits: list[DeclaredLimit] = []

    @property
    def agent_type(self) -> str:
        """Name of the pool, or of the one that includes it.

        Raises:
            InvalidInputError: it has none.
        """
        for pool in self.lineage():
            if pool.name is not None:
                return pool.name
        raise InvalidInputError(
            "unnamed_pool",
            "this pool has no name, and no pool includes it: write grns.Pool(NAME), or import the module that"
            " includes it",
        )

    @property
    def handlers(self) -> Mapping[str, Handler[Any, Any]]:
        """Handlers by task type, with those of included pools."""
        return {name: handler for pool in self.pools() for name, handler in pool._handlers.items()}

    @property
    def schedules(self) -> list[DeclaredSchedule]:
        """Schedules that are declared here, with those of included pools."""
        return [schedule for pool in self.pools() for schedule in pool._schedules]

    @property
    def limits(self) -> list[DeclaredLimit]:
        """Limits that are declared here, with those of included pools."""
        return [limit for pool in self.pools() for limit in pool._limits]

    def pools(self) -> Iterator[Pool]:
        """Yield this pool and all that it includes."""
        yield self
        for pool in self._included:
            yield from pool.pools()

    def lineage(self) -> Iterator[Pool]:
        """Yield this pool, the one that includes it, and so on."""
        pool: Pool | None = self
        while pool is not None:
            yield pool
            pool = pool.parent

    def include(self, *pools: Pool) -> None:
        """Take in the handlers, the lifespan and the hooks of pools without a name, such as those of modules.

        What their tasks and they themselves do not set, such as `max_attempts`, is as this pool sets it.

        Raises:
            InvalidInputError: one has a name, is included already, or handles a type that is handled here.

        Example:
            # mail.py
            tasks = grns.Pool()

            @tasks.task
            async def send_mail(mail: Mail) -> None: ...

            # shop.py
            pool = grns.Pool("shop")
            pool.include(mail.tasks)
        """
        for pool in pools:
            if pool.name is not None:
                raise InvalidInputError(
                    "bad_pool", f"the pool {pool.name} has workers of its own: include pools without a name"
                )
            if pool.parent is not None or pool in self.lineage():
                raise InvalidInputError("bad_pool", "a pool is included in one other pool")
            for task_type in pool.handlers:
                self._check_new(task_type)
            pool.parent = self
            self._included.append(pool)
            for handler in pool.handlers.values():
                handler.settle()

    @property
    def task(self) -> Registration:
        """Register a function as the handler of a task type: `@pool.task`, or `@pool.task(NAME, …)`.

        Parameters of the function are filled by annotation: the payload, validated by pydantic (a model, a
        dataclass, a TypedDict; a dict without an annotation); optionally the `Context`, and dependencies
        (`grns.Depends`). A payload that does not validate ends the task as `failed`. Coroutine functions run
        on the event loop, other functions in a thread. The returned value is the task's result: JSON, or
        what pydantic serializes.

        Args:
            name: name of the task type, 1 to 64 characters of `A-Za-z0-9_-`. Defaults to the function's name.
            max_attempts: maximum attempts, if the submission does not set it. Defaults to the pool's setting.
            timeout: maximum duration of one attempt, in seconds or as a `timedelta`; `math.inf` for none.
                Defaults to the pool's.
            backoff: delays between attempts. Defaults to the pool's.
            non_retryable: exceptions that end the task as `failed`, besides the pool's.
            retryable: exceptions that are retried, and no others, instead of the pool's.
            unique: `grns.Unique(...)`: submissions of this handler are merged into a task that waits or runs.
            stall_timeout: for how long an attempt may report no progress, keep no checkpoint and record no
                step, in seconds or as a `timedelta`, 5 seconds at least. Then it is ended, and the task is
                queued again, one priority higher. Defaults to no limit.
            publish: clients of MCP get the task type as a tool, with the docstring as its description.
            secret: paths of the payload that are secret, such as `["token", "accounts.*.password"]`: they are
                stored encrypted, shown as `•••`, and only the handler gets them. `SecretStr` in a model is
                always secret. Needs GRNS_KEYS_FILE.
            secret_result: the same of the result: `await handle.result()` returns the values.
            on_success: what grns submits when a task has succeeded: a task type of this pool, a handler, a
                `grns.FollowUp`, or a list of up to 10 of them.
            on_failure: the same for a task that is failed or dead.

        Returns:
            The handler, which can be called as the function.

        Raises:
            InvalidInputError: an argument is invalid, the signature does not fit, or the type has a handler.

        Example:
            @pool.task
            async def fetch_page(page: Page, ctx: grns.Context) -> dict: ...

            @pool.task("resize", max_attempts=5, timeout=60)
            def resize_image(image: Image) -> None: ...
        """
        return Registration(self)

    def cron(
        self,
        fields: str,
        *,
        time_zone: str = "UTC",
        name: str | None = None,
        payload: Any = None,
        priority: int = 2,
        max_attempts: int | None = None,
        overlap: Overlap = "skip",
        catch_up: CatchUp = "latest",
        window: float | timedelta = _DAY,
        jitter_seconds: float = 0.0,
        pause_after_failures: int | None = None,
    ) -> Callable[[HandlerT], HandlerT]:
        """Submit a task of the handler below by the clock: `@pool.cron(…)` stands above `@pool.task`.

        Each worker puts the schedule in place when it starts; a change of its rhythm takes effect then.

        Args:
            fields: minute, hour, day, month, day of the week, as of cron.
            time_zone: by whose clocks. What the clocks leave out runs when they have moved on; what comes
                twice runs once.
            name: name of the schedule. Defaults to `POOL-TASK_TYPE`.
            payload: payload of each task.
            priority, max_attempts: as of `Client.submit`.
            overlap: while the task before has not ended, `skip` submits none, `queue_one` submits one that
                waits for its end, `queue` one at each time, `cancel_previous` cancels the task before, whose
                end the new one waits for, `allow` submits one.
            catch_up: of the times that were missed, `latest` submits a task for the last one, `all` for each
                (100 at most, and as `overlap` allows), `none` for none.
            window: how long ago a missed time may be, in seconds or as a `timedelta`, at most 7 days.
            jitter_seconds: each task starts up to so much later than it is due, less than an hour; the same
                time has always the same delay. Defaults to 0.
            pause_after_failures: pause the schedule once so many of its tasks in a row ended failed or dead.
                Defaults to never.

        Raises:
            InvalidInputError: an argument is invalid (`bad_schedule`), or what is below is no handler.

        Example:
            @pool.cron("0 9 * * 1-5", time_zone="Europe/Vienna")
            @pool.task
            async def write_report() -> None: ...
        """
        return self._declaring(
            payload, cron=fields, time_zone=time_zone, name=name, priority=priority, overlap=overlap,
            max_attempts=max_attempts, catch_up=catch_up, window_seconds=seconds_of(window),
            jitter_seconds=jitter_seconds, pause_after_failures=pause_after_failures,
        )  # fmt: skip

    def every(
        self,
        interval: float | timedelta,
        *,
        name: str | None = None,
        payload: Any = None,
        priority: int = 2,
        max_attempts: int | None = None,
        overlap: Overlap = "skip",
        catch_up: CatchUp = "latest",
        window: float | timedelta = _DAY,
        jitter_seconds: float = 0.0,
        pause_after_failures: int | None = None,
    ) -> Callable[[HandlerT], HandlerT]:
        """Submit a task of the handler below in intervals: `@pool.every(…)` stands above `@pool.task`.

        Args:
            interval: elapsed time, in seconds or as a `timedelta`, at least a second. It is counted from
                when the schedule was created, also after a restart.
            jitter_seconds: as of `cron`, and less than the interval.
            name, payload, priority, max_attempts, overlap, catch_up, window, pause_after_failures: as
                of `cron`.

        Raises:
            InvalidInputError: as of `cron`.

        Example:
            @pool.every(timedelta(minutes=10), overlap="queue_one")
            @pool.task
            async def sweep_files() -> None: ...
        """
        seconds = seconds_of(interval)
        if seconds is None:
            raise InvalidInputError(
                "bad_schedule", "interval: pass seconds or a timedelta, such as timedelta(minutes=10)"
            )
        return self._declaring(
            payload, every_seconds=seconds, name=name, priority=priority,
            max_attempts=max_attempts, overlap=overlap, catch_up=catch_up, window_seconds=seconds_of(window),
            jitter_seconds=jitter_seconds, pause_after_failures=pause_after_failures,
        )  # fmt: skip

    def limit(
        self,
        name: str,
        *,
        key: str | None = None,
        max: int | None = None,
        rate: str | None = None,
        burst: int | None = None,
    ) -> Callable[[HandlerT], HandlerT]:
        """Limit the tasks of the handler below: `@pool.limit(…)` stands above `@pool.task`.

        Each worker puts the limit in place when it starts. Handlers and pools that name the same limit share
        it. Tasks that were submitted before do not fall under it.

        Args:
            name: name of the limit, 1 to 64 characters of `A-Za-z0-9_-`.
            key: place of a value in the payload, such as `tenant_id` or `customer.id`: each value has a limit
                of its own. Defaults to one for all.
            max: tasks of a key that are queued or running at once.
            rate: tasks of a key that may begin in a time: `500/1m`, `10/s`.
            burst: tasks of the rate that may begin at once. Defaults to those of one second, at least 1.

        Raises:
            InvalidInputError: an argument is invalid (`bad_limit`), or what is below is no handler.

        Example:
            @pool.limit("openai", rate="500/1m", burst=50)
            @pool.limit("tenant", key="tenant_id", max=5)
            @pool.task
            async def summarize(document: Document) -> Summary: ...
        """
        fields = {"name": name, "key": key, "max_tasks": max, "rate": rate, "burst": burst}

        def declare(handler: HandlerT) -> HandlerT:
            if not isinstance(handler, Handler):
                raise InvalidInputError("bad_limit", "write the limit above @pool.task, not below it")
            self._limits.append(DeclaredLimit(handler, fields))
            return handler

        return declare

    def on_startup(self, function: Hook) -> Hook:
        """Call a function without arguments when a worker process starts, after the lifespan's beginning."""
        self.hooks.startup.append(function)
        return function

    def on_shutdown(self, function: Hook) -> Hook:
        """Call a function without arguments when a worker process ends, before the lifespan's end."""
        self.hooks.shutdown.append(function)
        return function

    def on_attempt_started(self, function: Hook) -> Hook:
        """Call a function with the `Context` before each attempt. If it raises, that is logged only."""
        self.hooks.attempt_started.append(function)
        return function

    def on_attempt_finished(self, function: Hook) -> Hook:
        """Call a function with the `Context` and an `AttemptEnd` after each attempt, before it is written."""
        self.hooks.attempt_finished.append(function)
        return function

    def _register(self, function: Callable[..., Any], task_type: Any, **options: Any) -> Handler[Any, Any]:
        settings = checked_settings(**options)
        handler = Handler[Any, Any](function, self, task_type=task_type, settings=settings)
        self._check_new(handler.task_type)
        self._handlers[handler.task_type] = handler
        return handler

    def _declaring(self, payload: Any, **fields: Any) -> Callable[[HandlerT], HandlerT]:
        def declare(handler: HandlerT) -> HandlerT:
            if not isinstance(handler, Handler):
                raise InvalidInputError("bad_schedule", "write the schedule above @pool.task, not below it")
            self._schedules.append(DeclaredSchedule(handler, payload, fields))
            return handler

        return declare

    def _check_new(self, task_type: str) -> None:
        *_, root = self.lineage()
        if task_type in root.handlers:
            raise InvalidInputError("duplicate_handler", f"the task type {task_type} has a handler already")
