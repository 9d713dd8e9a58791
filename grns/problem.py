"""Problems: what a door answers where something could not be done, the same at each (RFC 9457)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grns import key
from grns.errors import (
    BadInput,
    BrokerRefused,
    Conflict,
    Denied,
    Forbidden,
    GrnsError,
    NotFound,
    OutcomeUnknown,
    Stale,
    Unavailable,
    WaitTimeout,
)

_LONGEST = 1000
_BAD_REQUEST = 400
# What of bad input has a status of its own.
_STATUSES = {"too_large": 413, "bad_content_type": 415, "too_many_requests": 429}
# What the database says of values is meant for those who know its tables.
_REFUSED = "refused_by_database"

# The first that fits. Of those with a detail here, the error itself may tell of our inside.
_KINDS: tuple[tuple[type[GrnsError], int, str, str, str | None], ...] = (
    (Stale, 412, "stale", "It was changed since it was read", None),
    (Conflict, 409, "conflict", "It is other than was assumed", None),
    (NotFound, 404, "not_found", "It does not exist", None),
    (Forbidden, 403, "forbidden", "That is not allowed", None),
    (Denied, 401, "denied", "Who asks is not known", None),
    (WaitTimeout, 504, "timeout", "It has not happened in time", None),
    (BrokerRefused, 502, "refused_by_broker", "The broker does not take it", "the broker does not take it"),
    (
        OutcomeUnknown,
        503,
        "outcome_unknown",
        "Nobody knows whether it was done",
        "no answer came: it may have been done or not; look, or ask again with the same idempotency key",
    ),
    (
        Unavailable,
        503,
        "unavailable",
        "It cannot be done just now",
        "Postgres or the broker does not answer, and nothing was changed: try again",
    ),
)


@dataclass(frozen=True, slots=True)
class Problem:
    """What went wrong: `code` is short and stable, `title` says what that means, `detail` what it is here."""

    status: int
    code: str
    title: str
    detail: str
    trace_id: str | None = None

    def document(self) -> dict[str, Any]:
        """Return it as `application/problem+json`."""
        trace = {} if self.trace_id is None else {"trace_id": self.trace_id}
        return {
            "type": f"urn:grns:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            **trace,
        }


def of(error: GrnsError) -> Problem:
    """Return what may be told of an error: no secret, nothing of our inside, and little of what was sent."""
    if isinstance(error, BadInput):
        detail = "the database cannot keep that" if error.code == _REFUSED else _shown(error)
        status = _STATUSES.get(error.code, _BAD_REQUEST)
        return Problem(status, error.code, "What was sent cannot be accepted", detail)
    for kind, status, code, title, detail_of_all in _KINDS:
        if isinstance(error, kind):
            return Problem(status, code, title, detail_of_all or _shown(error))
    return internal()


def internal(trace_id: str | None = None) -> Problem:
    """Return what is told of a bug: nothing but where to look for it."""
    return Problem(500, "internal", "Something is wrong in here", "the log has more of it", trace_id)


def _shown(error: GrnsError) -> str:
    return key.redacted(str(error))[:_LONGEST]
