"""The backoff: the formula of the protocol, its bounds, its other forms."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grns.model.retry import MAX_BACKOFF_SECONDS, Backoff

LEAST, MIDDLE, MOST = 0.0, 0.5, math.nextafter(1.0, 0.0)
chances = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("attempts", "seconds"),
    [(1, 5), (2, 10), (3, 20), (4, 40), (5, 80), (8, 640), (9, 900), (10, 900), (31, 900), (10**9, 900)],
)
def test_the_formula_of_the_seed(attempts: int, seconds: float) -> None:
    """min(5 s · 2^min(attempt − 1, 30), 15 min) · random(0.8 … 1.2)."""
    assert Backoff().delay_seconds(attempts, MIDDLE) == pytest.approx(seconds)
    assert Backoff().delay_seconds(attempts, LEAST) == pytest.approx(0.8 * seconds)
    assert Backoff().delay_seconds(attempts, MOST) == pytest.approx(1.2 * seconds)


@given(st.integers(-5, 10**6), chances)
def test_the_bounds(attempts: int, chance: float) -> None:
    assert 4.0 <= Backoff().delay_seconds(attempts, chance) <= 1080.0


@given(st.integers(1, 100), chances)
def test_no_attempt_waits_less_than_the_one_before(attempts: int, chance: float) -> None:
    for form in ("exponential", "polynomial"):
        policy = Backoff(curve=form)
        assert policy.delay_seconds(attempts, chance) <= policy.delay_seconds(attempts + 1, chance)


def test_the_exponent_ends_at_30() -> None:
    endless = Backoff(base_seconds=0.001, max_seconds=1e12)
    assert endless.delay_seconds(31, MIDDLE) == pytest.approx(0.001 * 2**30)
    assert endless.delay_seconds(32, MIDDLE) == endless.delay_seconds(31, MIDDLE)


def test_no_delay_is_longer_than_a_year() -> None:
    """Postgres could not add a longer one to the time for ever."""
    endless = Backoff(base_seconds=1e300, max_seconds=1e308)
    assert endless.delay_seconds(1, MIDDLE) == MAX_BACKOFF_SECONDS
    assert Backoff(max_seconds=1e308, curve=lambda _: 1e308).delay_seconds(1, MOST) == MAX_BACKOFF_SECONDS


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 2), (2, 8), (3, 18), (10, 200), (30, 900)])
def test_the_polynomial_form(attempts: int, seconds: float) -> None:
    policy = Backoff(base_seconds=2, curve="polynomial")
    assert policy.delay_seconds(attempts, MIDDLE) == pytest.approx(seconds)


def test_a_function_takes_the_place_of_the_form() -> None:
    asked: list[int] = []

    def seconds(attempts: int) -> int:
        asked.append(attempts)
        return 7 * attempts

    policy = Backoff(base_seconds=1000, curve=seconds)
    assert policy.delay_seconds(3, MIDDLE) == pytest.approx(21)
    assert policy.delay_seconds(0, LEAST) == pytest.approx(0.8 * 7), "the first attempt is 1"
    assert policy.delay_seconds(1000, MIDDLE) == pytest.approx(900), "the cap holds for it, too"
    assert asked == [3, 1, 1000]


@pytest.mark.parametrize("seconds", [-1.0, -math.inf, 0.0])
def test_no_delay_is_negative(seconds: float) -> None:
    assert Backoff(curve=lambda _: seconds).delay_seconds(1, MIDDLE) == 0.0


def test_an_endless_delay_ends_at_the_cap() -> None:
    assert Backoff(curve=lambda _: math.inf).delay_seconds(1, MIDDLE) == pytest.approx(900)


def test_a_delay_that_is_no_number_is_none() -> None:
    """Postgres refuses NaN as an interval: the task would fail instead of being tried again."""
    with pytest.raises(ValueError, match="NaN"):
        Backoff(curve=lambda _: math.nan).delay_seconds(1, MIDDLE)


def test_ten_thousand_that_fail_at_once_come_back_spread() -> None:
    """No tenth of the time in which they come back sees more than twice its share of them."""
    for attempts in (1, 4, 9):
        delays = [Backoff().delay_seconds(attempts, random.random()) for _ in range(10_000)]
        first, last = min(delays), max(delays)
        tenths = Counter(min(9, int(10 * (delay - first) / (last - first))) for delay in delays)
        assert last - first > 0.35 * first, "they come back within a moment of one another"
        assert max(tenths.values()) <= 2 * len(delays) / 10, tenths
