"""How pages write what they are given: nothing of it hidden, times and amounts for people."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime
from typing import Any

# Up to so many seconds, in units of so many.
_UNITS = ((90.0, 1.0, "s"), (5400.0, 60.0, "min"), (129_600.0, 3600.0, "h"), (float("inf"), 86_400.0, "d"))
_SIZES = ("B", "KiB", "MiB", "GiB")
# Controls, changes of direction, what has no width, ends of lines, what no font has.
_HIDDEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs", "Co"})
# Without these, scripts and emoji are written wrongly, and they move nothing.
_JOINERS = frozenset("\u200c\u200d")
_SUMMARY_WIDTH = 160


class Exact(str):
    """A text that is escaped, and else stays as it is: what is in a form has to come back unchanged."""

    __slots__ = ()


def visible(text: str) -> str:
    """Return a text in which what nobody would see is written out, as `⟨U+202E⟩`."""
    if text.isprintable():
        return text
    return "".join(
        f"⟨U+{ord(letter):04X}⟩" if _is_hidden(letter) and letter not in "\n\t" else letter for letter in text
    )


def document(value: Any) -> Exact:
    """Return a value as JSON to read and to change: what nobody would see stands in it as `\\u202e`."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    if all(letter.isprintable() or letter == "\n" for letter in text):
        return Exact(text)
    return Exact("".join(_escaped(letter) for letter in text))


def _escaped(letter: str) -> str:
    if letter == "\n" or not _is_hidden(letter):
        return letter
    return json.dumps(letter)[1:-1]


def _is_hidden(letter: str) -> bool:
    return unicodedata.category(letter) in _HIDDEN and letter not in _JOINERS


def summary(payload: dict[str, Any], *, without: tuple[str, ...] = ("task_id", "actor")) -> str:
    """Return a payload in one short line."""
    parts = (
        f"{name}={_brief(value)}"
        for name, value in payload.items()
        if name not in without and value is not None
    )
    return shortened(" ".join(parts), _SUMMARY_WIDTH)


def _brief(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and {"class", "message"} <= value.keys():  # an error, whose frames are long
        return f"{value['class']}: {value['message']}"
    return json.dumps(value, ensure_ascii=False)


def shortened(text: str, width: int) -> str:
    """Return the beginning of a text, marked where it is not all."""
    return text if len(text) <= width else text[: width - 1] + "…"


def instant(value: str | datetime) -> datetime:
    """Return a time as the API writes it, in UTC."""
    said = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return said.astimezone(UTC)


def ago(then: datetime, now: datetime) -> str:
    """Return how long ago something was, or in how long it will be."""
    seconds = (now - then).total_seconds()
    if abs(seconds) < 1:
        return "now"
    distance = next(
        f"{int(abs(seconds) // unit)} {name}" for below, unit, name in _UNITS if abs(seconds) < below
    )
    return f"{distance} ago" if seconds > 0 else f"in {distance}"


def lasted(seconds: float | None) -> str:
    """Return a duration; a dash where there is none."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 90:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def sized(count: int) -> str:
    """Return a number of bytes."""
    size, place = float(count), 0
    while size >= 1024 and place < len(_SIZES) - 1:
        size, place = size / 1024, place + 1
    return f"{size:.0f} {_SIZES[place]}" if place == 0 else f"{size:.1f} {_SIZES[place]}"


def grouped(number: float) -> str:
    """Return a number whose thousands stand apart."""
    text = f"{number:,.1f}" if isinstance(number, float) and not number.is_integer() else f"{number:,.0f}"
    return text.replace(",", "\u202f")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 task`, `2 tasks`."""
    return f"{grouped(number)} {noun}" if number == 1 else f"{grouped(number)} {noun}s"
