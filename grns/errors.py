"""The errors that grns raises on purpose. Every one has an exit code of the CLI.

GrnsError
├── InvalidInputError              input that grns cannot accept; `code` says why (exit code 2)
│   └── RejectedError              a message on the bus that grns cannot accept
├── SealedError                    a stored value is sealed, and cannot be opened here
├── SettingsError                  a setting is missing or wrong (2)
├── NotFoundError                  no such task, key, … in this workspace (3)
├── ConflictError                  it exists and differs from what the caller assumes (4)
│   └── StaleVersionError          it changed after the caller read it
├── UnauthenticatedError           the API key is missing or invalid (7)
│   └── PermissionDeniedError      the API key does not allow this
├── UnavailableError               PostgreSQL or NATS cannot be reached; nothing was changed (5)
│   ├── ContendedError             another session locks a row
│   ├── UnusableError              retrying does not help until you repair it
│   ├── OutcomeUnknownError        the request was sent, the answer never came
│   └── RateLimitedError           too many requests are in progress
│       └── BacklogFullError       the pool has as many queued tasks as it may have
├── OverBudgetError                a budget is used up, and refuses submissions (5)
├── WaitTimeoutError               the time to wait has passed (6); also a TimeoutError
├── TaskEndedError                 a task ended without a result
│   ├── TaskFailedError            it failed; another attempt would not have helped
│   ├── TaskDeadError              its attempts are used up
│   └── TaskCancelledError         it was cancelled
├── LeaseLostError                 this attempt may not write any more
├── BrokerRefusedError             the broker will never take this message
├── DriftError                     a stream or durable consumer differs from what grns would create
└── LocalServerError               an embedded server did not start (5)
    └── InUseError                 another running program uses their directory (4)

TaskSignal                         how a handler says how its task ends: `except GrnsError` does not catch it
├── Retry                          a handler asks for another attempt
├── Snooze                         a handler puts its task off
└── Fail                           a handler ends its task as failed

Only `grns.postgres` and `grns.nats` catch errors of asyncpg and nats-py, and translate them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Never


class GrnsError(Exception):
    """Base class of all errors that grns raises on purpose."""

    exit_code = 1


class TaskSignal(Exception):
    """Base class of what a handler raises to say how its task ends. It is not a `GrnsError`."""


# What other frameworks call the delay of a retry.
_DELAYS = frozenset({"countdown", "eta", "delay", "defer", "in_"})


class Retry(TaskSignal):
    """A handler raises it to ask for another attempt. The current one counts.

    Args:
        reason: shown as the task's error.
        after: delay in seconds or as a `timedelta`. Defaults to the handler's backoff.
        error_class: name under which issues group the failure. Defaults to `Retry`.

    Example:
        raise grns.Retry("supplier is busy", after=30)
    """

    def __init__(
        self,
        reason: str = "",
        *,
        after: float | timedelta | None = None,
        error_class: str | None = None,
        **unknown: Never,
    ) -> None:
        said: dict[str, Any] = unknown
        for name, value in said.items():
            instead = f"after={value!r}" if name in _DELAYS else "a reason, after=, or error_class="
            raise TypeError(f"grns.Retry has no {name!r}: write {instead}")
        if not isinstance(reason, str):
            raise TypeError(f"a reason is text: for a delay, write grns.Retry(after={reason!r})")
        super().__init__(reason or "the handler asked for a retry")
        self.reason = reason
        self.after = after
        self.error_class = error_class


class Snooze(TaskSignal):
    """A handler raises it to put its task off. The attempt does not count, however often it does so.

    Args:
        after: delay before the next attempt, in seconds or as a `timedelta`, at most 366 days.

    Example:
        if not await has_slot(customer):
            raise grns.Snooze(30)
    """

    def __init__(self, after: float | timedelta) -> None:
        super().__init__(f"the handler put the task off: {after}")
        self.after = after


class Fail(TaskSignal):
    """A handler raises it to end the task as `failed`, without another attempt.

    Args:
        reason: shown as the task's error.
        error_class: name under which issues group the failure. Defaults to `Fail`.

    Example:
        raise grns.Fail("the order was withdrawn")
    """

    def __init__(self, reason: str = "", *, error_class: str | None = None) -> None:
        super().__init__(reason or "the handler gave up")
        self.reason = reason
        self.error_class = error_class


class InvalidInputError(GrnsError):
    """Input that grns cannot accept. Nothing was changed.

    `code` is stable and short, such as `bad_payload`: see the reference of error codes.
    """

    exit_code = 2

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RejectedError(InvalidInputError):
    """A message on the bus that cannot be accepted. It is kept as a dead letter."""


class SealedError(GrnsError):
    """A stored value is sealed, and cannot be opened here.

    `code` is `no_key` if its key is not known here, `not_ours` if it was changed or moved; for a worker, also
    `blob_missing`, `blob_store`, `bad_document` and `too_large`: a part of a payload is not there, cannot be
    read now, is not JSON, or is too long with the others.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SettingsError(GrnsError):
    """A setting is missing or wrong."""

    exit_code = 2


class NotFoundError(GrnsError):
    """The task, key, webhook or other resource does not exist in this workspace."""

    exit_code = 3


class ConflictError(GrnsError):
    """The resource exists and differs from what the caller assumes, such as an idempotency key in use."""

    exit_code = 4


class StaleVersionError(ConflictError):
    """The resource changed after the caller read it: read it again."""


class UnauthenticatedError(GrnsError):
    """The API key is missing or invalid."""

    exit_code = 7


class PermissionDeniedError(UnauthenticatedError):
    """The API key does not allow this operation."""


class UnavailableError(GrnsError):
    """PostgreSQL or NATS cannot be reached. Nothing was changed: try again later."""

    exit_code = 5


class ContendedError(UnavailableError):
    """Another session locked a row for too long, or PostgreSQL broke a deadlock: try again."""


class UnusableError(UnavailableError):
    """Retrying does not help: the connection is closed or refused, or the schema is missing."""


class OutcomeUnknownError(UnavailableError):
    """The request was sent and the answer never came: it may or may not have happened.

    After `submit_many`, `answers` has one entry per submission, in their order: its answer, or an error. An
    `OutcomeUnknownError` in it means that the task may exist; any other error means that it does not.
    """

    def __init__(self, message: str, *, answers: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.answers = answers


class RateLimitedError(UnavailableError):
    """Too many requests are in progress. Nothing was changed: try again later."""


class BacklogFullError(RateLimitedError):
    """The pool has as many queued tasks as its quota allows. Nothing was created: try again later."""


class OverBudgetError(GrnsError):
    """A budget is used up, and refuses submissions. Nothing was created: wait until more is allowed."""

    exit_code = 5


class WaitTimeoutError(GrnsError, TimeoutError):
    """The task did not end within the given time. It may still end."""

    exit_code = 6


class TaskEndedError(GrnsError):
    """A task ended without a result. `task` is the ended task, with its `last_error`."""

    def __init__(self, message: str, *, task: Any) -> None:
        super().__init__(message)
        self.task = task


class TaskFailedError(TaskEndedError):
    """The task failed: its handler said that another attempt would not help."""


class TaskDeadError(TaskEndedError):
    """The attempts of the task are used up."""


class TaskCancelledError(TaskEndedError):
    """The task was cancelled."""


class LeaseLostError(GrnsError):
    """This attempt's lease is over: grns refuses what it writes."""


class BrokerRefusedError(GrnsError):
    """The broker will never take this message as it is; `code` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class DriftError(GrnsError):
    """A stream or durable consumer differs from what grns would create."""


class LocalServerError(GrnsError):
    """An embedded server did not start."""

    exit_code = 5


class InUseError(LocalServerError):
    """Another running program (process id `holder`) uses embedded servers in the same directory."""

    exit_code = 4

    def __init__(self, place: str, holder: str) -> None:
        super().__init__(f"{place} is in use by process {holder}")
        self.holder = holder
