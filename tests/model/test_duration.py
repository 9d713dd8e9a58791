"""Durations, as people write them and as grns writes them back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grns.model.duration import parse, written


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("500ms", 0.5), ("1.5h", 5400), ("5 min", 300), ("5m", 300), ("2d", 172_800)],
)
def test_a_number_has_a_unit_or_means_seconds(text: str, seconds: float) -> None:
    assert parse(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "h", "-5s", "5y", "5H", "1e3", "1.", ".5s", "5s6", "٥s", "5\u202es", "5s "]
)
def test_anything_else_is_none(text: str) -> None:
    assert parse(text) is None


@given(st.integers(0, 10**10))
def test_what_is_written_is_read_back(seconds: int) -> None:
    assert parse(written(seconds)) == seconds


def test_the_largest_unit_is_taken_that_leaves_no_rest() -> None:
    assert [written(seconds) for seconds in (0, 45, 60, 5400, 7200, 86_400, 90_000)] == [
        "0s", "45s", "1m", "90m", "2h", "1d", "25h"
    ]  # fmt: skip
