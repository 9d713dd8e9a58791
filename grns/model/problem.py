"""Problems: the answers to failed requests, the same at every interface (RFC 9457)."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from grns.errors import (
    BacklogFullError,
    BrokerRefusedError,
    ConflictError,
    GrnsError,
    InvalidInputError,
    LeaseLostError,
    NotFoundError,
    OutcomeUnknownError,
    OverBudgetError,
    PermissionDeniedError,
    RateLimitedError,
    SealedError,
    StaleVersionError,
    UnauthenticatedError,
    UnavailableError,
    WaitTimeoutError,
)
from grns.model import api_key as key

_LONGEST_DETAIL = 500
# The first match counts.
KINDS: tuple[tuple[type[GrnsError], HTTPStatus, str], ...] = (
    (NotFoundError, HTTPStatus.NOT_FOUND, "not_found"),
    (StaleVersionError, HTTPStatus.PRECONDITION_FAILED, "stale"),
    (ConflictError, HTTPStatus.CONFLICT, "conflict"),
    (SealedError, HTTPStatus.CONFLICT, "sealed"),
    (LeaseLostError, HTTPStatus.CONFLICT, "stale_token"),
    (PermissionDeniedError, HTTPStatus.FORBIDDEN, "forbidden"),
    (UnauthenticatedError, HTTPStatus.UNAUTHORIZED, "denied"),
    (OverBudgetError, HTTPStatus.TOO_MANY_REQUESTS, "over_budget"),
    (BacklogFullError, HTTPStatus.TOO_MANY_REQUESTS, "backlog_full"),
    (RateLimitedError, HTTPStatus.TOO_MANY_REQUESTS, "too_many_requests"),
    (OutcomeUnknownError, HTTPStatus.SERVICE_UNAVAILABLE, "outcome_unknown"),
    (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE, "unavailable"),
    (BrokerRefusedError, HTTPStatus.CONFLICT, "refused_by_broker"),
    (WaitTimeoutError, HTTPStatus.GATEWAY_TIMEOUT, "timeout"),
)
_STATUS_OF_INPUT = {
    "too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "bad_content_type": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "bad_range": HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    "wrong_digest": HTTPStatus.UNPROCESSABLE_ENTITY,
}
# Fixed texts for errors of the server, whose own texts name hosts, users and statements.
_DETAILS = {
    "too_many_requests": "too many requests are under way: nothing was changed, ask again later",
    "outcome_unknown": "it may or may not have happened: ask again with the same message_id or key",
    "unavailable": "what this needs cannot be reached now: nothing was changed, ask again later",
    "refused_by_broker": "the broker does not take this message",
    "refused_by_database": "the database cannot keep that",
    "internal_error": "this is a bug in grns: its log says more",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong. `code` is stable and short, `status` the one of HTTP that comes nearest to it."""

    type: str
    title: str
    status: int
    code: str
    detail: str


def of(error: Exception) -> Problem:
    """Return the problem of an error; `internal_error` unless grns raised it on purpose."""
    status, code = _kind(error)
    detail = _DETAILS.get(code) or key.redacted(str(error))[:_LONGEST_DETAIL]
    return Problem("about:blank", status.phrase, status.value, code, detail)


def _kind(error: Exception) -> tuple[HTTPStatus, str]:
    if isinstance(error, InvalidInputError):
        return _STATUS_OF_INPUT.get(error.code, HTTPStatus.BAD_REQUEST), error.code
    for kind, status, code in KINDS:
        if isinstance(error, kind):
            return status, code
    return HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error"
