"""What a handler does once: its steps, sleeps, and the tasks that it submits and waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar

from grns.errors import (
    ConflictError,
    Fail,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    RateLimitedError,
    TaskEndedError,
    UnavailableError,
)
from grns.model.duration import bounded_wait, seconds_of
from grns.model.outcome import Claim, Suspension
from grns.postgres.database import Connection, Database, Row, run
from grns.tasks.blobs import read_result
from grns.worker.async_only import async_only
from grns.worker.step_function import adapter_of
from grns.worker.step_store import StepRecorder
from grns.worker.steps import AttemptSteps
from grns.worker.wait_methods import WaitMethods

if TYPE_CHECKING:
    from grns.client.client import Client
    from grns.client.handle import TaskHandle
    from grns.worker.handler import Handler

MOST_CHILDREN = 10_000

P = ParamSpec("P")
StepT = TypeVar("StepT")
ResultT = TypeVar("ResultT")


class StepMethods(WaitMethods):
    """The part of a `Context` that records what its handler has done."""

    _claim: Claim
    _database: Database
    _steps: AttemptSteps | None
    _make_steps: Callable[[], AttemptSteps] | None
    _is_in_transaction: bool
    outage: UnavailableError | None
    if TYPE_CHECKING:

        @property
        def client(self) -> Client: ...

    @async_only
    async def step_transaction(
        self, name: str, function: Callable[Concatenate[Connection, P], Awaitable[StepT]], /,
        *arguments: P.args, **named: P.kwargs,
    ) -> StepT:  # fmt: skip
        """Run a function in a transaction that also records its value: both are committed, or neither.

        Args:
            name: as of `step`.
            function: what to run: it gets an asyncpg connection in a transaction on the database of grns.
            arguments, named: of the function, behind the connection.

        Raises:
            InvalidInputError, LeaseLostError: as of `step`.

        Example:
            async def pay(connection, order: int) -> int:
                return await connection.fetchval("insert into payments values ($1) returning id", order)

            payment = await ctx.step_transaction("pay", pay, order.number)
        """
        adapter = adapter_of(function)
        steps = self._borrowing("ctx.step_transaction()")

        async def write(place: str) -> None:
            recorder = StepRecorder(steps, place, "step")
            async with self._opened() as connection:
                value = await function(connection, *arguments, **named)
                text = await recorder.record(connection, value, adapter)
            recorder.committed(text)

        answer: StepT = await steps.run_in(name, "step", write, adapter)
        return answer

    @async_only
    async def fan_out(
        self,
        name: str,
        task: Handler[Any, ResultT] | str,
        payloads: Iterable[Any],
        /,
        **options: Any,
    ) -> list[TaskHandle[ResultT]]:
        """Submit a task for each payload, once: a later attempt gets the same tasks.

        Args:
            name: as of `step`.
            task: handler, or name of the task type.
            payloads: one for each task, at most 10,000.
            options: those of `Client.submit`, such as `pool`, which a name needs, and `priority`.

        Returns:
            A handle for each task, for `join`.

        Raises:
            InvalidInputError: as of `step` and of `Client.submit`; nothing was created.
            LeaseLostError: as of `step`.

        Example:
            pages = await ctx.fan_out("pages", fetch_page, [{"url": url} for url in urls])
            texts = await ctx.join(pages)
        """
        steps, client = self._borrowing("ctx.fan_out()"), self.client
        submissions = [{"task": task, "payload": payload, "unique": None, **options} for payload in payloads]
        if len(submissions) > MOST_CHILDREN:
            raise InvalidInputError("bad_handler", f"a fan-out has at most {MOST_CHILDREN:,} tasks")

        async def write(place: str) -> None:
            recorder = StepRecorder(steps, place, "fan_out")
            async with self._opened() as connection:
                made = []
                for answer in await client.submit_many(submissions, connection=connection):
                    if isinstance(answer, ConflictError):
                        raise answer
                    made.append(answer.id)
                text = await recorder.record(connection, made)
            recorder.committed(text)

        ids = await steps.run_in(name, "fan_out", write)
        handler = None if isinstance(task, str) else task
        return [client.handle(task_id, handler) for task_id in ids]

    @async_only
    async def join(
        self, tasks: Sequence[TaskHandle[ResultT]], /, *, return_exceptions: bool = False
    ) -> list[ResultT]:
        """Wait until tasks have ended, and return their results in order.

        While one of them has not ended, this task waits, and its slot is free: the attempt ends here and does
        not count. Then the handler runs again from its beginning: what it has done before belongs into steps.

        Args:
            tasks: handles, such as those of `fan_out`.
            return_exceptions: True to get an error in place of the result of a task that has not succeeded.

        Raises:
            TaskFailedError, TaskDeadError, TaskCancelledError: one of the tasks has not succeeded.
            Fail: `dependency_cycle`: one of the tasks waits for this one.

        Example:
            texts = await ctx.join(await ctx.fan_out("pages", fetch_page, payloads))
        """
        steps = self._own_steps("ctx.join()")
        place = steps.waiting_place("join")
        found = await self._look(steps, tasks)
        if left := sum(not row["has_ended"] for row in found.values()):
            await self._suspend(steps, place, found, left, None)
        return [await self._joined(one, found[one.id], return_exceptions) for one in tasks]

    @async_only
    async def wait(
        self,
        tasks: Sequence[TaskHandle[ResultT]],
        /,
        *,
        count: int | None = None,
        timeout: float | timedelta | None = None,
    ) -> tuple[list[TaskHandle[ResultT]], list[TaskHandle[ResultT]]]:
        """Wait until some tasks have ended, however they did; meanwhile the slot is free, as in `join`.

        Which tasks had ended is recorded as a step: later attempts get the same answer.

        Args:
            tasks: handles, such as those of `fan_out`.
            count: how many must have ended. Defaults to all of them.
            timeout: maximum time to wait, in seconds or as a `timedelta`. Defaults to no limit.

        Returns:
            The tasks that have ended and the others, both in the order of `tasks`.

        Raises:
            Fail: `dependency_cycle`: one of the tasks waits for this one.
            InvalidInputError: `bad_handler`: an argument is invalid.

        Example:
            done, others = await ctx.wait(offers, count=1, timeout=timedelta(minutes=5))
            for handle in others:
                await handle.cancel()
        """
        steps = self._own_steps("ctx.wait()")
        seconds = None if timeout is None else seconds_of(timeout)
        if seconds is not None:
            seconds = bounded_wait(seconds)
        most = len({one.id for one in tasks})
        least = most if count is None else count
        if (timeout is not None and seconds is None) or not 0 <= least <= most:
            raise InvalidInputError(
                "bad_handler", "wait for a count of up to all of the tasks, and seconds or a timedelta"
            )
        place = steps.waiting_place("wait")
        ended = await steps.ended(place)
        if ended is None:
            found = await self._look(steps, tasks)
            ended = [one for one, row in found.items() if row["has_ended"]]
            if len(ended) < least and seconds != 0 and not await steps.is_over(place):
                await self._suspend(steps, place, found, least - len(ended), seconds)
            ended = await steps.note_ended(place, ended)
        there = set(ended)
        return [one for one in tasks if one.id in there], [one for one in tasks if one.id not in there]

    async def _look(self, steps: AttemptSteps, tasks: Sequence[TaskHandle[Any]]) -> dict[str, Row]:
        """Return how each of the tasks has ended, if it has."""
        ids = list(dict.fromkeys(one.id for one in tasks))
        read = partial(self._database.run, "read_joined", ids, self._claim.workspace, self._claim.id)
        found = {row["id"]: row for row in await steps.ask(read)}
        for task_id in ids:
            if task_id not in found:
                raise NotFoundError(f"there is no task {task_id} in workspace {self._claim.workspace}")
        return {task_id: found[task_id] for task_id in ids}

    async def _suspend(
        self, steps: AttemptSteps, place: str, found: Mapping[str, Row], least: int, seconds: float | None
    ) -> NoReturn:
        """Wait until `least` of the tasks that have not ended have."""
        open_ones = tuple(one for one, row in found.items() if not row["has_ended"])
        behind = [one for one in open_ones if found[one]["waits_for_me"]]
        if behind and least > len(open_ones) - len(behind) and seconds is None:
            raise Fail(
                f"the task waits for {behind[0]}, which waits for this one", error_class="dependency_cycle"
            )
        await steps.suspend(Suspension(place, seconds, open_ones, least))

    async def _joined(self, task: TaskHandle[Any], row: Row, returns_exceptions: bool) -> Any:
        if row["has_succeeded"]:
            return task.read(await read_result(self._database, row["result"], self._claim.workspace))
        try:
            return await task.result(timeout=0)
        except TaskEndedError as error:
            if not returns_exceptions:
                raise
            return error

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Connection]:
        """Open a transaction. If Postgres goes away, this attempt is given back, and does not count."""
        try:
            async with self._database.transaction() as connection:
                await run(
                    connection, "name_attempt", self._claim.trace_id, str(self._claim.causation_id or "")
                )
                yield connection
        except (OutcomeUnknownError, RateLimitedError):
            raise  # it may have committed: the steps are read again; or the workspace is full
        except UnavailableError as error:
            self.outage = error
            raise

    def _borrowing(self, name: str) -> AttemptSteps:
        """Return the steps for what needs a connection besides: not while the handler has one."""
        if self._is_in_transaction:
            raise InvalidInputError("bad_handler", f"{name}: call it outside of ctx.transaction()")
        return self._own_steps(name)

    def _own_steps(self, name: str) -> AttemptSteps:
        if self._make_steps is None:
            raise InvalidInputError("no_steps", f"{name} needs a worker, or grns.testing")
        self._steps = self._steps or self._make_steps()
        return self._steps
