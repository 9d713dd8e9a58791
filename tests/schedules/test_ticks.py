"""When schedules are due: intervals, clocks that are changed, and what was missed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest

from grns.errors import InvalidInputError
from grns.schedules.ticks import CatchUp, Missed, Rhythm, due

_HOUR, _QUARTER = timedelta(hours=1), timedelta(minutes=15)


def at(text: str) -> datetime:
    """Return a time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def cron(expression: str, zone: str = "UTC") -> Rhythm:
    """Return a cron expression."""
    return Rhythm(expression, None, zone, at("2026-01-01"))


def every(seconds: float) -> Rhythm:
    """Return an interval that began with the year."""
    return Rhythm(None, seconds, "UTC", at("2026-01-01"))


def local(rhythm: Rhythm, after: str, count: int) -> list[str]:
    """Return times by the clocks of the time zone, with their distance from UTC."""
    zone = ZoneInfo(rhythm.time_zone)
    moment = datetime.fromisoformat(after).replace(tzinfo=zone)
    return [time.astimezone(zone).strftime("%m-%d %H:%M%z") for time in islice(rhythm.after(moment), count)]


# The clocks go from 2 to 3 on 2026-03-29 in Vienna, and from 3 back to 2 on 2026-10-25; in New York on 03-08
# and 11-01; on Lord Howe by half an hour; in Santiago at midnight.
@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        ("30 2 * * *", "Europe/Vienna", "2026-03-28T12:00", ["03-29 03:00+0200", "03-30 02:30+0200"]),
        ("30 2 * * *", "Europe/Vienna", "2026-10-24T12:00", ["10-25 02:30+0200", "10-26 02:30+0100"]),
        ("0 * * * *", "Europe/Vienna", "2026-03-29T00:30", ["03-29 01:00+0100", "03-29 03:00+0200"]),
        (
            "0 * * * *", "Europe/Vienna", "2026-10-25T01:30",
            ["10-25 02:00+0200", "10-25 02:00+0100", "10-25 03:00+0100"],
        ),
        ("30 2 * * *", "America/New_York", "2026-03-07T12:00", ["03-08 03:00-0400", "03-09 02:30-0400"]),
        ("30 1 * * *", "America/New_York", "2026-10-31T12:00", ["11-01 01:30-0400", "11-02 01:30-0500"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00", ["10-04 02:30+1100", "10-05 02:15+1100"]),
        ("0 0 * * *", "America/Santiago", "2026-09-05T12:00", ["09-06 01:00-0300", "09-07 00:00-0300"]),
        ("0 9 * * 1-5", "Asia/Kolkata", "2026-06-05T12:00", ["06-08 09:00+0530", "06-09 09:00+0530"]),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00", ["02-29 00:00+0000"]),
    ],
)  # fmt: skip
def test_cron_follows_the_clocks(expression: str, zone: str, after: str, expected: list[str]) -> None:
    assert local(cron(expression, zone), after, len(expected)) == expected


ZONES = [
    "Europe/Vienna",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Europe/Dublin",
    "Asia/Beirut",
    "America/St_Johns",
    "Pacific/Chatham",
    "Africa/Cairo",
    "America/Havana",
    "UTC",
]


@pytest.mark.parametrize("zone", ZONES)
def test_a_daily_time_comes_once_a_day_the_year_round(zone: str) -> None:
    for minute in ("30 2", "30 0", "15 1", "45 23"):
        times = list(islice(cron(f"{minute} * * *", zone).after(at("2026-01-01")), 400))
        days = [time.astimezone(ZoneInfo(zone)).date() for time in times]
        assert {later - earlier for earlier, later in pairwise(days)} == {timedelta(days=1)}
        assert times == sorted(set(times))


def changes(zone: ZoneInfo) -> list[datetime]:
    """Return when the clocks of a zone are changed within a year, to the quarter of an hour."""
    quarters = [at("2026-01-01") + quarter * _QUARTER for quarter in range(4 * 8766)]
    offsets = [one.astimezone(zone).utcoffset() for one in quarters]
    return [one for one, (old, new) in zip(quarters[1:], pairwise(offsets), strict=True) if old != new]


def first(day: datetime, zone: ZoneInfo) -> datetime:
    """Return when the clocks show a quarter of an hour first; where they skip it, when they have."""
    quarters = (day.replace(tzinfo=UTC) + quarter * _QUARTER for quarter in range(-15 * 4, 15 * 4))
    return next(one for one in quarters if one.astimezone(zone).replace(tzinfo=None) >= day)


@pytest.mark.parametrize("name", ZONES)
def test_times_near_a_change_of_the_clocks(name: str) -> None:
    """A fixed time comes once: the first time, or right after the gap. What has a star follows real time."""
    zone = ZoneInfo(name)
    for change in changes(zone):
        near = change.astimezone(zone).replace(tzinfo=None, minute=0)
        window = [change - 26 * _HOUR + timedelta(minutes=minute) for minute in range(52 * 60)]
        for quarter in range(-10, 11):
            clock = near + quarter * _QUARTER
            times = cron(f"{clock.minute} {clock.hour} * * *", name).between(window[0], window[-1])
            days = [clock + timedelta(days=day) for day in (-2, -1, 0, 1, 2)]
            expected = {first(day, zone) for day in days}
            assert list(times) == sorted(one for one in expected if window[0] <= one < window[-1]), clock
        for minutes in ("*/15", "0"):
            times = cron(f"{minutes} * * * *", name).between(window[0], window[-1])
            step = 60 if minutes == "0" else 15
            expected = {one for one in window[:-1] if one.astimezone(zone).minute % step == 0}
            assert list(times) == sorted(expected), minutes


def test_an_interval_is_elapsed_time_from_a_fixed_beginning() -> None:
    times = list(islice(every(90).after(at("2026-03-29T00:00:10")), 3))
    assert times == [at("2026-03-29T00:01:30"), at("2026-03-29T00:03:00"), at("2026-03-29T00:04:30")]
    assert next(every(90).after(times[0])) == times[1], "the time itself is not after it"
    assert next(every(0.25 + 1).after(at("2026-01-01"))) == at("2026-01-01T00:00:01.250")


@pytest.mark.parametrize(
    ("expression", "zone", "words"),
    [
        ("* * * *", "UTC", "five fields"),
        ("* * * * * *", "UTC", "five fields"),
        ("61 * * * *", "UTC", "cron"),
        ("0 0 30 2 *", "UTC", "cron"),
        ("0 0 * * *", "Europe/Nowhere", "time_zone"),
        ("0 0 * * *", "../../etc/passwd", "time_zone"),
    ],
)
def test_what_names_no_time_is_refused(expression: str, zone: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words) as raised:
        cron(expression, zone)
    assert raised.value.code == "bad_schedule"


_NOON = at("2026-06-01T12:00")


@pytest.mark.parametrize(
    ("catch_up", "behind_hours", "window_hours", "submitted", "missed"),
    [
        ("latest", 0, 24, [0], None),
        ("latest", 3, 24, [0], Missed(3, _NOON - _HOUR)),
        ("latest", 3, 0, [0], Missed(3, _NOON - _HOUR)),
        ("all", 3, 24, [3, 2, 1, 0], None),
        ("all", 3, 1.5, [1, 0], Missed(2, _NOON - 2 * _HOUR)),
        ("none", 3, 24, [0], Missed(3, _NOON - _HOUR)),
    ],
)
def test_what_was_missed(
    catch_up: CatchUp, behind_hours: int, window_hours: float, submitted: list[int], missed: Missed | None
) -> None:
    for rhythm in (cron("0 * * * *"), every(3600)):
        found = due(
            rhythm, _NOON - behind_hours * _HOUR, _NOON, catch_up=catch_up, window_seconds=3600 * window_hours
        )
        assert [(_NOON - time) / _HOUR for time in found.submit] == submitted
        assert found.missed == missed
        assert found.next_at == _NOON + _HOUR


def test_none_is_caught_up_a_minute_later() -> None:
    now = _NOON + timedelta(seconds=61)
    found = due(cron("0 * * * *"), _NOON, now, catch_up="none", window_seconds=86_400)
    assert (found.submit, found.missed) == ((), Missed(1, _NOON))
    on_time = due(
        cron("0 * * * *"), _NOON, _NOON + timedelta(seconds=30), catch_up="none", window_seconds=86_400
    )
    assert on_time.submit == (_NOON,)


@pytest.mark.parametrize("day", ["2026-04-04", "2026-10-03"])
@pytest.mark.parametrize("expression", ["30 * * * *", "*/20 2 * * *", "30 2 * * *"])
@pytest.mark.parametrize("zone", ["Australia/Lord_Howe", "America/Santiago", "UTC"])
def test_times_of_a_range_are_the_same_wherever_it_begins(zone: str, expression: str, day: str) -> None:
    rhythm, end = cron(expression, zone), at(day) + 36 * _HOUR
    times = list(rhythm.between(at(day), end))
    for minutes in range(0, 36 * 60, 15):
        start = at(day) + timedelta(minutes=minutes)
        assert list(rhythm.between(start, end)) == [time for time in times if time >= start]


def test_years_are_not_gone_through() -> None:
    """A minute's schedule of a scheduler that was away for ten years."""
    for rhythm in (cron("* * * * *"), every(60)):
        found = due(rhythm, _NOON - timedelta(days=3650), _NOON, catch_up="all", window_seconds=86_400)
        assert (len(found.submit), found.submit[-1]) == (100, _NOON)
        assert found.missed is not None
        assert found.missed.count is None
