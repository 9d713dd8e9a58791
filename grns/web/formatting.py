"""Text on pages: hidden characters made visible, JSON, numbers, and times as the user prefers them."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from starlette.requests import Request

from grns.model.text import ago, shortened

# Controls, direction changes, zero-width characters, line ends, surrogates and private use.
_HIDDEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs", "Co"})
# Scripts and emoji need these, and they move nothing.
_JOINERS = frozenset("\u200c\u200d")
_SUMMARY_WIDTH = 160

THEME, TIMES = "grns_theme", "grns_times"
THEMES = ("auto", "light", "dark")
TIME_FORMS = ("relative", "utc", "local")
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,30}(/[A-Za-z0-9_+-]{1,30}){0,2}")


class Exact(str):
    """A text that is escaped and otherwise unchanged, for fields of forms, which send it back."""

    __slots__ = ()


def visible(text: str) -> str:
    """Return a text with hidden characters written out, such as `⟨U+202E⟩`."""
    if text.isprintable():
        return text
    return "".join(
        f"⟨U+{ord(char):04X}⟩" if _is_hidden(char) and char not in "\n\t" else char for char in text
    )


def document(value: Any) -> Exact:
    """Return a value as JSON to read and to edit, with hidden characters escaped, such as `\\u202e`."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    if all(char.isprintable() or char == "\n" for char in text):
        return Exact(text)
    return Exact(
        "".join(json.dumps(char)[1:-1] if char != "\n" and _is_hidden(char) else char for char in text)
    )


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _HIDDEN and char not in _JOINERS


def summary(payload: dict[str, Any], *, without: tuple[str, ...] = ("task_id", "actor")) -> str:
    """Return a payload as one short line."""
    parts = (
        f"{name}={_brief(value)}"
        for name, value in payload.items()
        if name not in without and value is not None
    )
    return shortened(" ".join(parts), _SUMMARY_WIDTH)


def _brief(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and {"class", "message"} <= value.keys():  # an error with long frames
        return f"{value['class']}: {value['message']}"
    return json.dumps(value, ensure_ascii=False)


def instant(value: str | datetime) -> datetime:
    """Parse a time of an API response, in UTC."""
    parsed = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return parsed.astimezone(UTC)


def grouped(number: float) -> str:
    """Return a number with its thousands separated."""
    text = f"{number:,.1f}" if isinstance(number, float) and not number.is_integer() else f"{number:,.0f}"
    return text.replace(",", "\u202f")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 task` or `2 tasks`."""
    return f"{grouped(number)} {noun}" if number == 1 else f"{grouped(number)} {noun}s"


@dataclass(frozen=True, slots=True)
class DisplayPreferences:
    """The theme and the form of times that a user chose. `zone` is their time zone, if a browser sent it."""

    theme: str = "auto"
    times: str = "relative"
    zone: ZoneInfo | None = None

    @classmethod
    def of(cls, request: Request) -> DisplayPreferences:
        """Read the preferences from cookies; ignore values that are not valid."""
        theme = request.cookies.get(THEME, "")
        times, _, zone = request.cookies.get(TIMES, "").partition(":")
        return cls(
            theme if theme in THEMES else "auto",
            times if times in TIME_FORMS else "relative",
            time_zone(zone.replace("~", "/")) if times == "local" else None,
        )

    def format(self, at: datetime, now: datetime) -> str:
        """Return a time in the form that the user prefers."""
        return ago(at, now) if self.times == "relative" else self.exact(at)

    def exact(self, at: datetime) -> str:
        """Return a time to the second, with its zone."""
        return f"{at.astimezone(self._zone):%Y-%m-%d %H:%M:%S %Z}"

    def short(self, at: datetime) -> str:
        """Return a recent time, without its year and zone."""
        return f"{at.astimezone(self._zone):%m-%d %H:%M:%S}"

    @property
    def zone_name(self) -> str:
        """The name of the zone, for the head of a column."""
        return "local" if self._zone is not UTC else "UTC"

    @property
    def _zone(self) -> tzinfo:
        return UTC if self.times != "local" or self.zone is None else self.zone


def times_cookie(times: str, zone: str | None) -> str:
    """Return the cookie for a form of times. A cookie cannot hold the slash of a zone's name."""
    if times != "local" or time_zone(zone or "") is None:
        return times
    return f"{times}:{(zone or '').replace('/', '~')}"


def time_zone(name: str) -> ZoneInfo | None:
    """Return the time zone with this name, or None if there is no such zone."""
    if not _ZONE.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
