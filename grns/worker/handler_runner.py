"""Running a handler: whatever it does, an Outcome comes out."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import structlog

from grns.errors import InvalidInputError, LeaseLostError, Retry, SealedError, TaskSignal
from grns.model.failure import failed, frames_of, traceback_text
from grns.model.json import Limits
from grns.model.outcome import Claim, Outcome, Verb
from grns.model.retry import put_off_seconds
from grns.telemetry.log import redacted
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import (
    AttemptFailed,
    AttemptSnoozed,
    AttemptSuspended,
    HandlerOverran,
    RetryRequested,
    StepsUnused,
)
from grns.worker.claims import payload_closed
from grns.worker.context import Context
from grns.worker.handler import Handler
from grns.worker.hooks import AttemptEnd
from grns.worker.judgement import (
    alone,
    asked_backoff,
    backoff_seconds,
    describe,
    is_final,
    is_on_purpose,
    payload_of,
    result_text,
)
from grns.worker.leases import Lease
from grns.worker.pool import Pool
from grns.worker.results import ResultStore
from grns.worker.step import NoKeyHereError, Suspended

_log = structlog.get_logger()

# The verb for each reason for which a handler had to stop.
_STOPPED = {
    "cancelled": Verb.CANCEL,
    "shutdown": Verb.RELEASE,
    "lost": Verb.RELEASE,
    "deadline": Verb.RELEASE,
}

_HOOK_SECONDS = 10.0
# For so long a task whose secrets cannot be opened here waits, at first and at most.
_CLOSED_SECONDS, _LONGEST_CLOSED_SECONDS = 2.0, 60.0

MakeContext = Callable[[Claim, Lease], Context]
AnyHandler = Handler[Any, Any]


class HandlerRunner:
    """Runs the handlers of one pool. Coroutines run here, everything else in threads."""

    def __init__(
        self,
        pool: Pool,
        *,
        make_context: MakeContext,
        threads: int | Executor,
        result_limits: Limits,
        emit: Emit,
        results: ResultStore | None = None,
    ) -> None:
        """`threads` is their number, or what runs handlers that are no coroutine functions.

        Without `results`, secrets are not sealed, and results that are too long are refused.
        """
        self._results = results
        self._pool = pool
        self._handlers = dict(pool.handlers)
        self._has_hooks = any(one.hooks.attempt_started or one.hooks.attempt_finished for one in pool.pools())
        self._resources = AsyncExitStack()
        self._states: dict[Pool, Any] = {}
        self._make_context = make_context
        self._threads = (
            ThreadPoolExecutor(max_workers=threads, thread_name_prefix="handler")
            if isinstance(threads, int)
            else threads
        )
        self._result_limits = result_limits
        self._emit = emit
        self._endings: set[asyncio.Future[None]] = set()

    @property
    def types(self) -> list[str]:
        """The task types that have a handler here."""
        return sorted(self._handlers)

    def check_key(self, task_type: str) -> None:
        """Raise SealedError if results of a task type have secrets, and nothing here can seal them."""
        is_secret = bool(self._handlers[task_type].secret_result_paths)
        if is_secret and self._results is not None and not self._results.can_seal:
            raise SealedError("no_key", "its result has secrets, and no key to seal them is here")

    async def start(self) -> None:
        """Enter the lifespans of the pool and of those that it includes; raise what they raise."""
        for pool in self._pool.pools():
            if pool.lifespan is not None:
                self._states[pool] = await self._resources.enter_async_context(pool.lifespan(pool))
            for function in pool.hooks.startup:
                await _called(function)
            for function in pool.hooks.shutdown:
                self._resources.push_async_callback(_called, function)

    async def stop(self) -> None:
        """Leave the lifespans, the last one first; raise what they raise."""
        await self._resources.aclose()

    async def run(self, claim: Claim, lease: Lease) -> tuple[Outcome, Context]:
        """Run the handler of a claimed task; what it returns or raises becomes the outcome."""
        handler = self._handlers[claim.task_type]
        context = self._make_context(claim, lease)
        if lease.ended in _STOPPED:  # before it has begun
            return Outcome(_STOPPED[lease.ended]), context
        began_at, raised = time.monotonic(), None
        try:
            outcome = Outcome(Verb.SUCCEED, result=await self.call(handler, context, lease))
            if context._steps is not None and (unused := context._steps.unused):
                self._emit(StepsUnused(claim.id, claim.task_type, claim.attempt, claim.trace_id, unused[:20]))
        except BaseException as error:
            # Only `lease` stops a handler, through its scope; another cancellation is that of the worker.
            if (
                isinstance(error, asyncio.CancelledError)
                and (current := asyncio.current_task()) is not None
                and current.cancelling()
            ):
                raise
            raised = alone(error, handler)
            outcome = self._judge(raised, claim, handler, lease, context)
        if context._steps is not None and context._steps.is_running:
            await context._steps.close(lambda: lease.ended is not None)
        if self._has_hooks and context._has_begun:
            verb = Verb.SUCCEED if context.finished is not None else outcome.verb
            end = AttemptEnd(verb.value, raised, time.monotonic() - began_at)
            for pool in handler.pool.lineage():
                await _notify(pool.hooks.attempt_finished, context, end)
        return outcome, context

    def close(self) -> None:
        """Start nothing more in threads; those that run are left to themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def call(self, handler: AnyHandler, context: Context, lease: Lease, *, state: Any = None) -> str:
        """Run a handler, and return its result as JSON; raise what it raises.

        `state` replaces that of the lifespan.
        """
        payload = payload_of(handler, lease.claim.payload, lease.claim.scrubber)
        state = self._state_of(handler) if state is None else state
        context._begin(
            payload,
            state=state,
            timeout_seconds=handler.timeout_seconds,
            secret_result=handler.secret_result_paths,
        )
        text = self._text(handler, await self._bounded(handler, context, payload, lease), context)
        if self._results is None:
            return text
        return await self._results.stored(text, handler.secret_result_paths, lease)

    async def _bounded(self, handler: AnyHandler, context: Context, payload: Any, lease: Lease) -> Any:
        signature = handler.call_signature
        with lease.bounded(handler.timeout_seconds):
            if handler.stall_seconds is not None or (context.attempt > 1 and signature.may_take_context):
                await context._begin_progress(handler.stall_seconds)
            if self._has_hooks:
                for pool in handler.pool.lineage():
                    await _notify(pool.hooks.attempt_started, context)
            arguments = signature.arguments(context, payload)
            if not signature.has_dependencies:
                return await self._invoke(handler, arguments, lease)
            return await self._invoke_with_dependencies(handler, context, arguments, lease)

    async def _invoke_with_dependencies(
        self, handler: AnyHandler, context: Context, arguments: dict[str, Any], lease: Lease
    ) -> Any:
        """Resolve dependencies and run the handler. What it raises counts, even if a dependency drops it."""
        raised: BaseException
        async with AsyncExitStack() as resources:
            try:
                arguments |= await handler.call_signature.resolve(context, resources)
                return await self._invoke(handler, arguments, lease)
            except BaseException as error:
                raised = error
                if lease.still_running is not None:  # its thread still uses them
                    lease.still_running.add_done_callback(partial(self._end_later, resources.pop_all()))
                raise
        raise raised

    def _end_later(self, resources: AsyncExitStack, _: object) -> None:
        ending = asyncio.ensure_future(resources.aclose())
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        ending.add_done_callback(_look_away)

    def _state_of(self, handler: AnyHandler) -> Any:
        """Return the state of the nearest pool with a lifespan."""
        if not self._states:
            return None
        return next((self._states[pool] for pool in handler.pool.lineage() if pool in self._states), None)

    async def _invoke(self, handler: AnyHandler, arguments: dict[str, Any], lease: Lease) -> Any:
        if handler.is_async:
            return await handler.function(**arguments)
        return await self._call_in_thread(handler, arguments, lease)

    async def _call_in_thread(self, handler: AnyHandler, arguments: dict[str, Any], lease: Lease) -> Any:
        run = contextvars.copy_context().run
        future = asyncio.get_running_loop().run_in_executor(
            self._threads, run, _in_thread, handler.function, arguments
        )
        try:
            answer = await asyncio.shield(future)
            return await answer if inspect.isawaitable(answer) else answer
        except asyncio.CancelledError:
            # A thread cannot be stopped: it sees ctx.should_stop, and keeps its slot until it ends.
            lease.end("timeout")
            future.add_done_callback(_look_away)
            self._emit(
                HandlerOverran(
                    lease.claim.id,
                    lease.claim.attempt,
                    lease.claim.trace_id,
                    "its thread runs until it sees ctx.should_stop",
                )
            )
            lease.still_running = future
            raise

    def _text(self, handler: AnyHandler, result: Any, context: Context) -> str:
        if result is not None and context.finished is not None:
            raise InvalidInputError(
                "result_ignored",
                "the handler's transaction has completed the task, and the value that it returns is ignored:"
                " pass it to tx.complete(...)",
            )
        most = None if self._results is None else self._results.most
        return result_text(handler, result, self._result_limits, most, context._claim.scrubber)

    def _judge(
        self, error: BaseException, claim: Claim, handler: AnyHandler, lease: Lease, context: Context
    ) -> Outcome:
        """Turn what a handler raised into an outcome."""
        if error is context.outage:
            return Outcome(Verb.RELEASE)
        if lease.ended in _STOPPED and not isinstance(error, (TaskSignal, LeaseLostError, Suspended)):
            return Outcome(_STOPPED[lease.ended])  # whatever its cleaning up raised
        if isinstance(error, LeaseLostError):
            lease.end("lost")
        if isinstance(error, Suspended):
            self._emit(
                AttemptSuspended(
                    claim.id, claim.task_type, claim.attempt, claim.trace_id, error.suspension.step
                )
            )
            return Outcome(Verb.SUSPEND, suspension=error.suspension)
        if isinstance(error, NoKeyHereError):  # a worker with the key gets it
            self._emit(payload_closed(claim, error))
            growing = _CLOSED_SECONDS * 2.0 ** min(claim.uncounted_attempts, 10)
            return Outcome(Verb.SNOOZE, backoff_seconds=min(growing, _LONGEST_CLOSED_SECONDS))
        if (seconds := put_off_seconds(error)) is not None:
            self._emit(AttemptSnoozed(claim.id, claim.task_type, claim.attempt, claim.trace_id, seconds))
            return Outcome(Verb.SNOOZE, backoff_seconds=seconds)
        error_class, message = describe(error, handler, claim.scrubber)
        traceback = "" if is_on_purpose(error) else redacted(traceback_text(error, claim.scrubber))
        asked = asked_backoff(error)
        is_asked_for = isinstance(error, Retry) and claim.counted_attempts < claim.attempt_limit
        self._emit(
            (RetryRequested if is_asked_for else AttemptFailed)(
                claim.id, claim.task_type, claim.attempt, claim.trace_id, error_class, message[:500],
                traceback,
            )
        )  # fmt: skip
        frames = frames_of(error, module=getattr(handler.function, "__module__", None) or "")
        return failed(
            claim.task_type,
            error_class,
            message,
            is_final=is_final(error, handler),
            backoff_seconds=backoff_seconds(handler, claim.counted_attempts) if asked is None else asked,
            is_usual=asked is None,
            lines=frames.lines(),
            places=frames.places(),
            traceback=traceback,
        )


async def _called(function: Callable[..., Any], *arguments: Any) -> None:
    answer = function(*arguments)
    if inspect.isawaitable(answer):
        await answer


async def _notify(hooks: Sequence[Callable[..., Any]], context: Context, *arguments: Any) -> None:
    """Call hooks: they observe, and an attempt does not depend on them."""
    for hook in hooks:
        try:
            async with asyncio.timeout(_HOOK_SECONDS):
                await _called(hook, context, *arguments)
        except Exception as error:
            message = context._claim.scrubbed(repr(error))
            _log.warning("hook_failed", hook=getattr(hook, "__qualname__", repr(hook)), error=message)


def _in_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Run a handler in a thread; a future cannot carry a `StopIteration`: its waiter would wait on."""
    try:
        return function(**arguments)
    except StopIteration as error:
        raise RuntimeError("the handler raised StopIteration") from error


def _look_away(future: asyncio.Future[Any]) -> None:
    """Take the late result of a thread, so that asyncio does not warn that it was never retrieved."""
    if not future.cancelled():
        future.exception()
