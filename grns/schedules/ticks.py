"""When a schedule is due.

A cron expression has five fields and follows the clocks of its time zone, as Debian's cron does: a time that
the clocks leave out runs when they have moved on, and one that comes twice runs once; with `*` in the minute
or the hour, it runs each time. An interval is elapsed time, from a fixed beginning.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from grns.errors import InvalidInputError

Overlap = Literal["skip", "queue_one", "queue", "cancel_previous", "allow"]
CatchUp = Literal["latest", "all", "none"]
LONGEST_WINDOW_SECONDS = 7 * 86_400.0
MOST_JITTER_SECONDS = 3600.0
_CODE = "bad_schedule"
# Of what was missed, so many are submitted at most with `catch_up` all.
_MOST_CAUGHT_UP = 100
# A time is missed once it has been due, and undecided, for so long.
_LATE_SECONDS = 60.0
_MOST_COUNTED = 1000
_INSTANT = timedelta(microseconds=1)
_NEAR_A_CHANGE = timedelta(hours=3)


@dataclass(frozen=True, slots=True)
class Rhythm:
    """A cron expression in a time zone, or an interval in seconds from a fixed time on."""

    cron: str | None
    every_seconds: float | None
    time_zone: str
    anchor_at: datetime

    def __post_init__(self) -> None:
        """Raise `InvalidInputError` if it says no times."""
        if next(self.after(self.anchor_at), None) is None:
            raise InvalidInputError(_CODE, f"cron: {self.cron!r} names no time")

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Return the times after a moment, in UTC, without end."""
        if self.every_seconds is not None:
            yield from self._intervals(moment)
            return
        try:
            zone = ZoneInfo(self.time_zone)
        except (KeyError, ValueError, OSError) as error:
            raise InvalidInputError(
                _CODE, f"time_zone: there is no {ascii(self.time_zone)[:60]}; names are like Europe/Vienna"
            ) from error
        expression = self.cron or ""
        if len(expression.split()) != 5:
            raise InvalidInputError(_CODE, f"cron: five fields, such as '0 9 * * 1-5', not {expression!r}")
        try:
            times = CronSim(expression, _begin(moment, zone))
        except CronSimError as error:
            raise InvalidInputError(_CODE, f"cron: {error} in {expression!r}") from error
        for time in times:
            found = time.astimezone(UTC)
            if found > moment:
                yield found

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Return the times from `start` on that are before `end`."""
        return takewhile(lambda time: time < end, self.after(start - _INSTANT))

    def _intervals(self, moment: datetime) -> Iterator[datetime]:
        every = timedelta(seconds=self.every_seconds or 1.0)
        count = max(1, math.floor((moment - self.anchor_at) / every))
        while True:
            found = self.anchor_at + count * every
            if found > moment:
                yield found
            count += 1


def _begin(moment: datetime, zone: ZoneInfo) -> datetime:
    """Return where to look for times after a moment: near a change of the clocks, some hours earlier.

    On Lord Howe, whose clocks change by half an hour, CronSim finds other times if it begins at the change.
    """
    before, later = (moment - _NEAR_A_CHANGE).astimezone(zone), (moment + _NEAR_A_CHANGE).astimezone(zone)
    return moment.astimezone(zone) if before.utcoffset() == later.utcoffset() else before


def jitter(schedule: str, due_at: datetime, most_seconds: float) -> timedelta:
    """Return how much later than it is due a task starts: less than `most_seconds`, and always the same."""
    said = f"{schedule}/{due_at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    share = int.from_bytes(hashlib.sha256(said.encode()).digest()[:6], "big") / 2**48
    return timedelta(microseconds=int(share * most_seconds * 1_000_000))


@dataclass(frozen=True, slots=True)
class Missed:
    """Times that are passed over: how many (None: not counted), and the last of them."""

    count: int | None
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Due:
    """What to do now: times to submit a task for, times that are passed over, and the next time."""

    submit: tuple[datetime, ...]
    missed: Missed | None
    next_at: datetime


def due(rhythm: Rhythm, next_at: datetime, now: datetime, *, catch_up: CatchUp, window_seconds: float) -> Due:
    """Return what is due between `next_at` and now.

    `latest` submits a task for the last time in the window, `all` for each (100 at most), `none` for the last
    one if it is less than a minute ago.
    """
    window = timedelta(seconds=_LATE_SECONDS if catch_up == "none" else max(window_seconds, _LATE_SECONDS))
    if rhythm.every_seconds is not None:  # what would be left out in any case is not gone through
        most = _MOST_CAUGHT_UP if catch_up == "all" else 1
        window = min(window, timedelta(seconds=(most + 1) * rhythm.every_seconds))
    begin = max(next_at, now - window)
    times: list[datetime] = []
    for time in rhythm.after(begin - _INSTANT):
        times.append(time)
        if time > now:
            break
    if not times or times[-1] <= now:
        raise InvalidInputError(_CODE, "there is no time after this one")
    *past, following = times
    chosen = past[-_MOST_CAUGHT_UP:] if catch_up == "all" else past[-1:]
    left_out = past[: len(past) - len(chosen)]
    before = _before(rhythm, next_at, begin)
    missed = None
    if before or left_out:
        is_counted = len(before) < _MOST_COUNTED
        last_at = left_out[-1] if left_out else before[-1]
        missed = Missed(len(before) + len(left_out) if is_counted else None, last_at)
    return Due(tuple(chosen), missed, following)


def _before(rhythm: Rhythm, next_at: datetime, begin: datetime) -> list[datetime]:
    """Return the times before the window; not all of them where they are very many."""
    times = islice(rhythm.after(next_at - _INSTANT), _MOST_COUNTED)
    return list(takewhile(lambda time: time < begin, times))
