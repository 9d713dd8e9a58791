"""The error tree.

GrnsError
├── Retry                 a handler asks to be run again
├── Fail                  a handler says that running again is useless
├── BadInput              what was handed in cannot be accepted (exit code 2)
│   └── Rejected          a message on the bus that cannot be accepted
├── SettingsError         a setting is missing or wrong (2)
├── NotFound              the thing named does not exist (3)
├── Conflict              it exists, but is other than the caller assumes (4)
│   └── Stale             somebody has changed it since the caller has read it
├── Denied                whoever asks is not known (7)
│   └── Forbidden         they are known, and may not do that
├── Unavailable           Postgres or the broker cannot be reached (5)
│   ├── OutcomeUnknown    the request was sent, the answer never came
│   └── TooManyRequests   so much is under way that this was not taken in
├── WaitTimeout           it did not happen in time (6)
├── LeaseLost             this attempt may not write any more
├── BrokerRefused         the broker will never take this message
├── Drift                 a stream or durable is other than grns would make it
└── LocalServerError      an embedded server did not start (5)
    └── InUse             another living program has their directory (4)

Errors of drivers are translated once, in `store/` and `transport/`; nothing above
these rooms catches an error of asyncpg or nats-py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any


class GrnsError(Exception):
    """Anything that grns raises on purpose."""

    exit_code = 1


class Retry(GrnsError):
    """Ask for another attempt.

    `after` is the delay before the next attempt, in seconds or as a `timedelta`; None takes the
    task type's backoff. `error_class` is the name under which the failure is counted.
    """

    def __init__(
        self, reason: str = "", *, after: float | timedelta | None = None, error_class: str | None = None
    ) -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.reason = reason
        self.after = after
        self.error_class = error_class


class Fail(GrnsError):
    """End the task as `failed`: another attempt would not help."""

    def __init__(self, reason: str = "", *, error_class: str | None = None) -> None:
        super().__init__(reason or "the handler gave up")
        self.reason = reason
        self.error_class = error_class


class BadInput(GrnsError):
    """What was handed in cannot be accepted; `code` is stable and short."""

    exit_code = 2

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Rejected(BadInput):
    """A message on the bus cannot be accepted; it goes to the dead letters."""


class SettingsError(GrnsError):
    """A setting is missing or wrong."""

    exit_code = 2


class NotFound(GrnsError):
    """The thing named does not exist."""

    exit_code = 3


class Conflict(GrnsError):
    """The thing exists, but is other than the caller assumes."""

    exit_code = 4


class Stale(Conflict):
    """Somebody has changed it since the caller has read it."""


class Denied(GrnsError):
    """Whoever asks is not known."""

    exit_code = 7


class Forbidden(Denied):
    """Whoever asks is known, and may not do that."""


class Unavailable(GrnsError):
    """Postgres or the broker cannot be reached; nothing was changed."""

    exit_code = 5


class Contended(Unavailable):
    """Another session locks a row for longer than grns waits, or Postgres broke a deadlock: try again."""


class Unusable(Unavailable):
    """Trying again does not help until you repair it: closed, refused, or without the schema of grns."""


class OutcomeUnknown(Unavailable):
    """The request was sent and the answer never came: it may or may not have happened.

    Of a request for many, a part may have: `answers` then has, in their order, what became of each.
    That is its answer, or an error: of those that are `OutcomeUnknown` nobody knows, the others do not exist.
    """

    def __init__(self, message: str, *, answers: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.answers = answers


class TooManyRequests(Unavailable):
    """So much is under way that this was not taken in: nothing was changed, and later it may be."""


class WaitTimeout(GrnsError):
    """What was waited for did not happen in time."""

    exit_code = 6


class LeaseLost(GrnsError):
    """This attempt's lease is over: what it writes now is refused."""


class BrokerRefused(GrnsError):
    """The broker will never take this message as it is; `code` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Drift(GrnsError):
    """A stream or durable is other than grns would make it."""


class LocalServerError(GrnsError):
    """An embedded server did not start."""

    exit_code = 5


class InUse(LocalServerError):
    """Another living program, whose process id is `holder`, runs embedded servers in the same directory."""

    exit_code = 4

    def __init__(self, place: str, holder: str) -> None:
        super().__init__(f"{place} is in use by process {holder}")
        self.holder = holder
