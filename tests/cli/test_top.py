"""Rates: from what was counted in each minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from grns.cli.top import COUNTED, FollowRate
from grns.stats.counts import StepCounts

NOON = datetime(2026, 2, 6, 12, 0, 0, tzinfo=UTC)


def minute(offset: int, **counts: int) -> StepCounts:
    """Return what was counted in a minute, so many from noon on."""
    names = (*COUNTED, "queue_count", "queue_ms_sum", "run_count", "run_ms_sum")
    return StepCounts(NOON + timedelta(minutes=offset), **{**dict.fromkeys(names, 0), **counts})


def at(seconds: float) -> datetime:
    """Return a time after noon."""
    return NOON + timedelta(seconds=seconds)


def test_a_first_look_tells_of_the_last_whole_minute() -> None:
    pace = FollowRate()
    pace.note([minute(-1, submitted=120, queue_count=2, queue_ms_sum=3000), minute(0, submitted=7)], at(30))
    assert pace.rates()["submitted"] == 2.0
    assert pace.means() == {"queue_seconds": 1.5, "run_seconds": None}


def test_without_anything_counted_there_is_nothing() -> None:
    pace = FollowRate()
    assert set(pace.rates().values()) == {0.0}
    pace.note([], at(0))
    assert set(pace.rates().values()) == {0.0}
    assert pace.means() == {"queue_seconds": None, "run_seconds": None}


def test_two_looks_tell_what_happened_between_them() -> None:
    pace = FollowRate()
    pace.note([minute(-1, submitted=1000), minute(0, submitted=10, run_count=1, run_ms_sum=100)], at(30))
    pace.note([minute(-1, submitted=1000), minute(0, submitted=30, run_count=3, run_ms_sum=900)], at(34))
    assert pace.rates()["submitted"] == 5.0
    assert pace.means()["run_seconds"] == 0.4


def test_a_minute_that_is_read_no_more_stays_counted() -> None:
    pace = FollowRate()
    pace.note([minute(-2, submitted=1000), minute(-1, submitted=10), minute(0, submitted=10)], at(58))
    pace.note([minute(-1, submitted=10), minute(0, submitted=12), minute(1, submitted=2)], at(62))
    assert pace.rates()["submitted"] == 1.0
    assert FollowRate.since(at(62)) == NOON - timedelta(minutes=1)


def test_rates_are_of_the_last_ten_seconds() -> None:
    pace = FollowRate()
    for seconds in range(0, 40, 2):
        pace.note([minute(0, submitted=100 if seconds >= 20 else 0)], at(seconds))
    assert pace.rates()["submitted"] == 0.0, "what happened then is too long ago"
    pace.note([minute(0, submitted=150)], at(40))
    assert pace.rates()["submitted"] == 5.0
