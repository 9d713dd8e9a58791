"""How pages write what they are given: nothing of it hidden, times and amounts for people."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime
from typing import Any

from grns.text import ago, lasted, shortened, sized

__all__ = [
    "Exact",
    "ago",
    "counted",
    "document",
    "grouped",
    "instant",
    "lasted",
    "shortened",
    "sized",
    "summary",
    "visible",
]

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


def instant(value: str | datetime) -> datetime:
    """Return a time as the API writes it, in UTC."""
    said = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return said.astimezone(UTC)


def grouped(number: float) -> str:
    """Return a number whose thousands stand apart."""
    text = f"{number:,.1f}" if isinstance(number, float) and not number.is_integer() else f"{number:,.0f}"
    return text.replace(",", "\u202f")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 task`, `2 tasks`."""
    return f"{grouped(number)} {noun}" if number == 1 else f"{grouped(number)} {noun}s"
