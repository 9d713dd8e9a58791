"""How somebody wants pages to look: light or dark, and how times are written. Two cookies keep it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from starlette.requests import Request

from grns.web import formatting as words

THEME, TIMES = "grns_theme", "grns_times"
THEMES = ("auto", "light", "dark")
FORMS = ("relative", "utc", "local")
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,30}(/[A-Za-z0-9_+-]{1,30}){0,2}")


@dataclass(frozen=True, slots=True)
class DisplayPreferences:
    """How pages look. `zone` is where local times are of; None where nobody has said it yet."""

    theme: str = "auto"
    times: str = "relative"
    zone: ZoneInfo | None = None

    def written(self, then: datetime, now: datetime) -> str:
        """Return a time as it is wanted."""
        if self.times == "relative":
            return words.ago(then, now)
        return self.exactly(then)

    def exactly(self, then: datetime) -> str:
        """Return a time to the second, with its zone."""
        return f"{then.astimezone(self._place):%Y-%m-%d %H:%M:%S %Z}"

    def clocked(self, then: datetime) -> str:
        """Return a time of the latest days, for lists of what happened: without year and zone."""
        return f"{then.astimezone(self._place):%m-%d %H:%M:%S}"

    def short(self) -> str:
        """Return what the zone is called."""
        return "local" if self._place is not UTC else "UTC"

    @property
    def _place(self) -> tzinfo:
        return UTC if self.times != "local" or self.zone is None else self.zone


def read(request: Request) -> DisplayPreferences:
    """Return how somebody wants it, as far as their cookies say anything that makes sense."""
    theme = request.cookies.get(THEME, "")
    times, _, zone = request.cookies.get(TIMES, "").partition(":")
    return DisplayPreferences(
        theme if theme in THEMES else "auto",
        times if times in FORMS else "relative",
        named(zone.replace("~", "/")) if times == "local" else None,
    )


def cookie(times: str, zone: str | None) -> str:
    """Return what is kept of the form of times: a cookie has no slash in it."""
    return (
        times
        if times != "local" or named(zone or "") is None
        else f"{times}:{(zone or '').replace('/', '~')}"
    )


def named(zone: str) -> ZoneInfo | None:
    """Return the time zone of a name, None where it is none."""
    if not _ZONE.fullmatch(zone):
        return None
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
