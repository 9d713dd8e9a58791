"""Problems: one code for each kind of error, and nothing of ours in what is told of it."""

from __future__ import annotations

import pytest

from grns.errors import (
    BadInput,
    BrokerRefused,
    Conflict,
    Contended,
    NotFound,
    OutcomeUnknown,
    Rejected,
    TooManyRequests,
    Unavailable,
    Unusable,
    WaitTimeout,
)
from grns.model import problem

SECRET = "postgresql://grns:hunter2@db.internal/app"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (BadInput("bad_json", "no"), 400, "bad_json"),
        (Rejected("bad_envelope", "no"), 400, "bad_envelope"),
        (BadInput("too_large", "no"), 413, "too_large"),
        (NotFound("no"), 404, "not_found"),
        (Conflict("no"), 409, "conflict"),
        (TooManyRequests("no"), 429, "too_many_requests"),
        (Unavailable("no"), 503, "unavailable"),
        (Contended("no"), 503, "unavailable"),
        (Unusable("no"), 503, "unavailable"),
        (OutcomeUnknown("no"), 503, "outcome_unknown"),
        (WaitTimeout("no"), 504, "timeout"),
        (BrokerRefused("full", "no"), 409, "refused_by_broker"),
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
        Unavailable(SECRET),
        OutcomeUnknown(SECRET),
        TooManyRequests(SECRET),
        ValueError(SECRET),
        Unusable(SECRET),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_wrong_on_our_side_is_not_told_in_its_words(error: Exception) -> None:
    found = problem.of(error)
    assert "hunter2" not in found.detail
    assert "internal/" not in found.detail


def test_a_long_story_is_cut() -> None:
    assert len(problem.of(Conflict("x" * 10_000)).detail) == 500
