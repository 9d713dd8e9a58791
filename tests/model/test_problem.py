"""Problems: one code for each kind of error, and nothing of ours in what is told of it."""

from __future__ import annotations

import pytest

from grns.errors import (
    BrokerRefusedError,
    ConflictError,
    ContendedError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    RateLimitedError,
    RejectedError,
    UnavailableError,
    UnusableError,
    WaitTimeoutError,
)
from grns.model import problem

SECRET = "postgresql://grns:hunter2@db.internal/app"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidInputError("bad_json", "no"), 400, "bad_json"),
        (RejectedError("bad_envelope", "no"), 400, "bad_envelope"),
        (InvalidInputError("too_large", "no"), 413, "too_large"),
        (NotFoundError("no"), 404, "not_found"),
        (ConflictError("no"), 409, "conflict"),
        (RateLimitedError("no"), 429, "too_many_requests"),
        (UnavailableError("no"), 503, "unavailable"),
        (ContendedError("no"), 503, "unavailable"),
        (UnusableError("no"), 503, "unavailable"),
        (OutcomeUnknownError("no"), 503, "outcome_unknown"),
        (WaitTimeoutError("no"), 504, "timeout"),
        (BrokerRefusedError("full", "no"), 409, "refused_by_broker"),
        (ValueError("no"), 500, "internal_error"),
    ],
    ids=repr,
)
def test_each_error_has_its_problem(error: Exception, status: int, code: str) -> None:
    found = problem.of(error)
    assert (found.status, found.code) == (status, code)
    assert found.title
    assert found.detail


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError(SECRET),
        OutcomeUnknownError(SECRET),
        RateLimitedError(SECRET),
        ValueError(SECRET),
        UnusableError(SECRET),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_wrong_on_our_side_is_not_told_in_its_words(error: Exception) -> None:
    found = problem.of(error)
    assert "hunter2" not in found.detail
    assert "internal/" not in found.detail


def test_a_long_story_is_cut() -> None:
    assert len(problem.of(ConflictError("x" * 10_000)).detail) == 500
