"""How the end of a handler is judged, wherever it runs: in a worker, or over HTTP."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from grns.errors import (
    Fail,
    InvalidInputError,
    LeaseLostError,
    OverBudgetError,
    Retry,
    TaskSignal,
)
from grns.model.envelope import first_problem
from grns.model.failure import clean, error_message
from grns.model.json import Limits, dumps, jsonable, loads_stored
from grns.model.retry import Backoff, asked_seconds
from grns.model.secret import Path, with_secrets
from grns.worker.step import NoKeyHereError, Suspended

if TYPE_CHECKING:
    from grns.model.secret import Scrubber
    from grns.worker.handler import Handler

    AnyHandler = Handler[Any, Any]


def payload_of(handler: AnyHandler, text: str, scrubber: Scrubber | None = None) -> Any:
    """Return a payload as a handler takes it. Raises Fail (`bad_payload`) if it does not validate."""
    signature = handler.call_signature
    if not signature.takes_payload:
        return None
    payload = loads_stored(text)
    if signature.payload is None:
        return payload
    try:
        return signature.payload.validate_python(payload)
    except ValidationError as error:
        problem = first_problem(error, scrubber)
    raise Fail(f"payload.{problem}", error_class="bad_payload")  # outside of `except`: no traceback


def result_text(
    handler: AnyHandler,
    result: Any,
    limits: Limits,
    most: Limits | None = None,
    scrubber: Scrubber | None = None,
) -> str:
    """Return what a handler returned as JSON. Raises Fail (`bad_result`) if it cannot be stored.

    `most`: the limits of what can be kept as a blob; None: nothing can.
    """
    try:
        if (adapter := handler.call_signature.result) is not None:
            result = _dumped(adapter, result, handler.secret_result_paths)
        value = jsonable(result)
        try:
            return dumps(value, limits)
        except InvalidInputError as error:
            if most is None or error.code not in ("too_large", "too_many_nodes"):
                raise
            return dumps(value, most)
    except ValidationError as error:
        problem = first_problem(error, scrubber)
    except (InvalidInputError, PydanticSerializationError) as error:
        problem = str(error)
    raise Fail(f"the result cannot be stored: {problem}", error_class="bad_result")


def is_final(error: BaseException, handler: AnyHandler) -> bool:
    """Return whether an exception ends the task as `failed`: another attempt would not help."""
    if isinstance(error, TaskSignal):
        return isinstance(error, Fail)
    if isinstance(error, InvalidInputError) and error.code == "bad_handler":
        return True  # the handler's code is wrong
    is_retryable = handler.retryable is None or isinstance(error, handler.retryable)
    return isinstance(error, handler.non_retryable) or not is_retryable


def alone(error: BaseException, handler: AnyHandler) -> BaseException:
    """Return the only error of a group, as of an `asyncio.TaskGroup`, if it decides how the attempt ends."""
    inner = error
    while isinstance(inner, BaseExceptionGroup) and (
        len(inner.exceptions) == 1
        or any(inner.split(kind)[1] is None for kind in (Suspended, NoKeyHereError))
    ):
        inner = inner.exceptions[0]
    decides = isinstance(inner, (TaskSignal, LeaseLostError, NoKeyHereError, OverBudgetError, Suspended))
    return inner if decides or is_final(inner, handler) != is_final(error, handler) else error


def _dumped(adapter: TypeAdapter[Any], result: Any, secret: Sequence[Path]) -> Any:
    """Return a result as its annotation says. Raises ValidationError if it is something else."""
    try:
        document = adapter.dump_python(result, mode="json", by_alias=True, warnings="error")
    except PydanticSerializationError:  # such as a dict for a model
        result = adapter.validate_python(result)
        document = adapter.dump_python(result, mode="json", by_alias=True)
    return with_secrets(document, adapter.dump_python(result, by_alias=True), secret) if secret else document


def describe(error: BaseException, handler: AnyHandler, scrubber: Scrubber | None = None) -> tuple[str, str]:
    """Return the name under which an exception is grouped, and its message, without secrets."""
    message = error_message(error, scrubber)
    if isinstance(error, TimeoutError) and not message and handler.timeout_seconds is not None:
        message = f"no end after {handler.timeout_seconds} s"
    named = error.error_class if isinstance(error, (Retry, Fail)) else None
    return clean(str(named or type(error).__name__), scrubber)[:255], message


def is_on_purpose(error: BaseException) -> bool:
    """Tell whether a handler asked for this end in so many words: where it did so explains nothing."""
    return isinstance(error, (Retry, Fail)) and error.__cause__ is None and error.__context__ is None


def asked_backoff(error: BaseException) -> float | None:
    """Return the delay that a handler has asked for."""
    return asked_seconds(error.after) if isinstance(error, Retry) else None


def backoff_seconds(handler: AnyHandler, attempts: int) -> float:
    """Return the usual delay of the next attempt, after so many that count."""
    try:
        return handler.backoff.delay_seconds(attempts, random.random())
    except Exception:  # a user's own function; a broken one must not keep the task from its retry
        return Backoff().delay_seconds(attempts, random.random())
