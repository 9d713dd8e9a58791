"""Running a handler: whatever it does, an Outcome comes out."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import BaseModel, ValidationError

from grns.errors import Fail, InvalidInputError, LeaseLostError, Retry
from grns.model.envelope import first_problem
from grns.model.failure import clean, error_message, failed, frames_of, traceback_text
from grns.model.json import Limits, dumps, loads_stored
from grns.model.outcome import Claim, Outcome, Verb
from grns.model.retry import Backoff, asked_seconds
from grns.telemetry.log import redacted
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import AttemptFailed, HandlerOverran, RetryRequested
from grns.worker.context import Context
from grns.worker.leases import Lease
from grns.worker.pool import Handler, Pool

# What a handler that was told to end asks for, where it did end.
_STOPPED = {
    "cancelled": Verb.CANCEL,
    "shutdown": Verb.RELEASE,
    "lost": Verb.RELEASE,
    "deadline": Verb.RELEASE,
}

MakeContext = Callable[[Claim, Lease], Context]


class Handlers:
    """Runs the handlers of one pool. Coroutines run here, everything else in threads."""

    def __init__(
        self, pool: Pool, *, make_context: MakeContext, threads: int, result_limits: Limits, emit: Emit
    ) -> None:
        self._pool = pool
        self._make_context = make_context
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="handler")
        self._result_limits = result_limits
        self._emit = emit

    @property
    def types(self) -> list[str]:
        """The task types that have a handler here."""
        return sorted(self._pool.handlers)

    async def run(self, claim: Claim, lease: Lease) -> tuple[Outcome, Context]:
        """Run the handler of a claimed task; what it returns or raises becomes the outcome."""
        handler = self._pool.handlers[claim.task_type]
        context = self._make_context(claim, lease)
        if lease.ended in _STOPPED:  # before it has begun
            return Outcome(_STOPPED[lease.ended]), context
        try:
            result = await self._call(handler, context, lease)
            outcome = Outcome(Verb.SUCCEED, result=self._text(result))
        except Exception as error:
            outcome = self._judge(error, claim, handler, lease, context)
        except asyncio.CancelledError as error:
            # Only `lease` stops a handler, through its scope: this one the handler raised itself.
            if (current := asyncio.current_task()) is not None and current.cancelling():
                raise
            outcome = self._judge(error, claim, handler, lease, context)
        except BaseException as error:
            outcome = self._judge(error, claim, handler, lease, context)
        return outcome, context

    def close(self) -> None:
        """Start nothing more in threads; those that run are left to themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _call(self, handler: Handler, context: Context, lease: Lease) -> Any:
        arguments = [context, *self._payload(handler, lease.claim)]
        with lease.bounded(handler.timeout_seconds):
            if handler.is_async:
                return await handler.function(*arguments)
            return await self._call_in_thread(handler, arguments, lease)

    async def _call_in_thread(self, handler: Handler, arguments: list[Any], lease: Lease) -> Any:
        run = contextvars.copy_context().run
        future = asyncio.get_running_loop().run_in_executor(
            self._threads, run, _in_thread, handler.function, arguments
        )
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # A thread cannot be stopped, only told; its slot stays taken until it has ended.
            lease.end("timeout")
            future.add_done_callback(_look_away)
            self._emit(
                HandlerOverran(
                    lease.claim.id,
                    lease.claim.attempt,
                    lease.claim.trace_id,
                    "its thread goes on until it sees task.lost",
                )
            )
            lease.still_running = future
            raise

    def _payload(self, handler: Handler, claim: Claim) -> list[Any]:
        if not handler.takes_payload:
            return []
        payload = loads_stored(claim.payload)
        if handler.payload_model is None:
            return [payload]
        try:
            return [handler.payload_model.validate_python(payload)]
        except ValidationError as error:
            problem = first_problem(error)
        raise Fail(f"payload.{problem}", error_class="bad_payload")  # outside of `except`: no traceback

    def _text(self, result: Any) -> str:
        if isinstance(result, BaseModel):
            result = result.model_dump(mode="json")
        try:
            return dumps(result, self._result_limits)
        except InvalidInputError as error:
            raise Fail(f"the result cannot be stored: {error}", error_class="bad_result") from error

    def _judge(
        self, error: BaseException, claim: Claim, handler: Handler, lease: Lease, context: Context
    ) -> Outcome:
        """Turn what a handler raised into an outcome."""
        if error is context.outage:
            return Outcome(Verb.RELEASE)
        if lease.ended in _STOPPED and not isinstance(error, (Retry, Fail, LeaseLostError)):
            return Outcome(_STOPPED[lease.ended])  # whatever its cleaning up raised
        if isinstance(error, LeaseLostError):
            lease.end("lost")
        error_class, message = _describe(error, handler)
        traceback = "" if _is_on_purpose(error) else redacted(traceback_text(error))
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
            is_final=isinstance(error, Fail),
            backoff_seconds=_backoff(error, claim, handler),
            lines=frames.lines(),
            places=frames.places(),
            traceback=traceback,
        )


def _describe(error: BaseException, handler: Handler) -> tuple[str, str]:
    message = error_message(error)
    if isinstance(error, TimeoutError) and not message and handler.timeout_seconds is not None:
        message = f"no end after {handler.timeout_seconds} s"
    named = error.error_class if isinstance(error, (Retry, Fail)) else None
    return clean(str(named or type(error).__name__))[:255], message


def _is_on_purpose(error: BaseException) -> bool:
    """Tell whether a handler asked for this end in so many words: where it did so explains nothing."""
    return isinstance(error, (Retry, Fail)) and error.__cause__ is None and error.__context__ is None


def _backoff(error: BaseException, claim: Claim, handler: Handler) -> float:
    if isinstance(error, Retry) and (after := asked_seconds(error.after)) is not None:
        return after
    try:
        return handler.backoff.delay_seconds(claim.counted_attempts, random.random())
    except Exception:  # a user's own function; a broken one must not keep the task from its retry
        return Backoff().delay_seconds(claim.counted_attempts, random.random())


def _in_thread(function: Callable[..., Any], arguments: list[Any]) -> Any:
    """Run a handler in a thread; a future cannot carry a `StopIteration`: its waiter would wait on."""
    try:
        return function(*arguments)
    except StopIteration as error:
        raise RuntimeError("the handler raised StopIteration") from error


def _look_away(future: asyncio.Future[Any]) -> None:
    """Take the late result of a thread, so that asyncio does not warn that it was never retrieved."""
    if not future.cancelled():
        future.exception()
