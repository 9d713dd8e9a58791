"""What every worker can do once: steps, sleeps, and waits for signals."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from grns.errors import InvalidInputError
from grns.model.duration import seconds_of
from grns.model.found_event import FoundEvent
from grns.model.json import Limits, dumps
from grns.worker.async_only import async_only

if TYPE_CHECKING:
    from grns.worker.steps import AttemptSteps

_EVENT = re.compile(r"evt(\.[A-Za-z0-9_-]{1,64}){2,4}", re.ASCII)
_SIGNAL = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)

P = ParamSpec("P")
StepT = TypeVar("StepT")


class WaitMethods:
    """Steps, sleeps and waits of an attempt, in a worker of Python or over HTTP."""

    if TYPE_CHECKING:

        def _own_steps(self, name: str) -> AttemptSteps: ...

    @overload
    async def step(
        self, name: str, function: Callable[P, Awaitable[StepT]], /, *arguments: P.args, **named: P.kwargs
    ) -> StepT: ...
    @overload
    async def step(
        self, name: str, function: Callable[P, StepT], /, *arguments: P.args, **named: P.kwargs
    ) -> StepT: ...

    @async_only
    async def step(self, name: str, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Run a function once: its value is recorded, and later attempts of the task get that value.

        An exception is not recorded: the next attempt runs the function again. An attempt that has recorded
        a step does not count if it is retried. If the function is annotated with what it returns, pydantic
        writes and reads the value; otherwise it is JSON. A plain function runs in a thread.

        Args:
            name: name of the step, 1 to 255 printable characters without `#`. A second step of the same name
                is `name#2`, and so on: steps are found by their order. Steps that run side by side need names
                of their own.
            function: what to run. It may run twice if the worker dies before its value is recorded.
            arguments, named: of the function.

        Raises:
            InvalidInputError: the name or the value cannot be recorded (`bad_handler`), or the task has
                10,000 steps (`too_many_steps`).
            LeaseLostError: the lease is lost; nothing was recorded.

        Example:
            account = await ctx.step("create_account", create_account, user)
        """
        return await self._own_steps("ctx.step()").run(name, function, arguments, named)

    @async_only
    async def sleep(self, duration: float | timedelta) -> None:
        """Sleep, and give the slot to other tasks: the attempt ends here and does not count.

        When the time has come, the handler runs again from its beginning: what it has done before belongs
        into steps. A sleep of up to 2 seconds keeps the slot.

        Args:
            duration: seconds, or a `timedelta`; at most 366 days.

        Raises:
            InvalidInputError: `bad_handler`: the duration is invalid.

        Example:
            await ctx.step("invite", send_invitation, user)
            await ctx.sleep(timedelta(days=3))
            await ctx.step("remind", send_reminder, user)
        """
        seconds = seconds_of(duration)
        if seconds is None:
            raise InvalidInputError("bad_handler", f"sleep for seconds or a timedelta, not {duration!r}")
        await self._own_steps("ctx.sleep()").sleep(seconds)

    @async_only
    async def sleep_until(self, time: datetime) -> None:
        """Sleep until a time, as `sleep` does. One that has passed is over at once.

        Args:
            time: a time with its zone, at most 366 days from now.

        Raises:
            InvalidInputError: `bad_handler`: the time has no zone, or is too far away.

        Example:
            await ctx.sleep_until(invoice.due_at)
        """
        if not isinstance(time, datetime) or time.tzinfo is None:
            raise InvalidInputError("bad_handler", f"sleep until a time with its zone, not {time!r}")
        await self._own_steps("ctx.sleep_until()").sleep((time - datetime.now(UTC)).total_seconds())

    @async_only
    async def wait_for_signal(self, name: str, *, timeout: float | timedelta | None = None) -> Any:
        """Wait for a signal, and return its value. While there is none, the slot is free, as in `sleep`.

        Signals of one name are taken in the order in which they were sent, also those that were sent before.

        Args:
            name: name of the signal, 1 to 64 characters of `A-Za-z0-9_.-`.
            timeout: maximum time to wait, in seconds or as a `timedelta`. Defaults to no limit.

        Raises:
            WaitTimeoutError: it did not come in time. Later attempts raise it, too: the time-out is recorded.
            InvalidInputError: `bad_handler`: an argument is invalid.

        Example:
            approval = await ctx.wait_for_signal("approved", timeout=timedelta(days=3))
        """
        seconds = None if timeout is None else seconds_of(timeout)
        if (
            not isinstance(name, str)
            or not _SIGNAL.fullmatch(name)
            or (timeout is not None and seconds is None)
        ):
            raise InvalidInputError(
                "bad_handler", "wait for a signal with a name of A-Z a-z 0-9 _ . - and a timeout in seconds"
            )
        return await self._own_steps("ctx.wait_for_signal()").signal(name, seconds)

    @async_only
    async def wait_for_event(
        self,
        kind: str,
        where: Mapping[str, Any] | None = None,
        *,
        timeout: float | timedelta | None = None,
    ) -> FoundEvent:
        """Wait for an event of the workspace, and return it. Meanwhile the slot is free, as in `sleep`.

        An event that happened before counts, too, from the task's creation on: none is missed. The next wait
        for the same gets a later event.

        Args:
            kind: exact kind of the event, such as `evt.task.completed`.
            where: fields that its payload contains, such as `{"task_type": "import"}`. Defaults to none.
            timeout: maximum time to wait, in seconds or as a `timedelta`. Defaults to no limit.

        Raises:
            WaitTimeoutError: it did not happen in time. Later attempts raise it, too: that is recorded.
            InvalidInputError: `bad_handler`: an argument is invalid.

        Example:
            done = await ctx.wait_for_event("evt.task.completed", {"task_type": "import"})
            await ctx.step("report", report, done.payload["task_id"])
        """
        seconds = None if timeout is None else seconds_of(timeout)
        if (
            not isinstance(kind, str)
            or not _EVENT.fullmatch(kind)
            or (timeout is not None and seconds is None)
        ):
            raise InvalidInputError(
                "bad_handler", "wait for an exact kind, such as evt.task.completed, and a timeout in seconds"
            )
        text = dumps(dict(where or {}), Limits())
        return FoundEvent.of(await self._own_steps("ctx.wait_for_event()").event(kind, text, seconds))
