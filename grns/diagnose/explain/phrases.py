"""Parts of sentences: times, numbers with nouns, and shortened texts of users."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_LONGEST = 160


def clock(moment: datetime, now: datetime) -> str:
    """Return a time in UTC, with its date unless it is today."""
    instant = moment.astimezone(UTC)
    form = "%H:%M:%SZ" if instant.date() == now.astimezone(UTC).date() else "%Y-%m-%d %H:%M:%SZ"
    return instant.strftime(form)


def counted(number: int, noun: str, *, has_more: bool = False) -> str:
    """Return a number with its noun: `1 task`, `1,000+ tasks`."""
    return f"{number:,}{'+' if has_more else ''} {noun}{'' if number == 1 and not has_more else 's'}"


def short(text: str | None) -> str:
    """Return the first line of a text, shortened."""
    line = next(iter((text or "").strip().splitlines()), "")
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def because(reason: str | None) -> str:
    """Return a reason in brackets; nothing without one."""
    text = short(reason)
    return f" ({text})" if text else ""


def failure(error: Mapping[str, Any] | None, error_class: str | None = None) -> str:
    """Return the class and message of an error."""
    found = error or {}
    name = short(str(error_class or found.get("class") or "an error"))
    message = short(str(found.get("message") or ""))
    return f"{name}: {message}" if message else name


def progress(percent: float | None, step: str | None) -> str:
    """Return what an attempt has reported: `40 %, page 3`; nothing if it has reported neither."""
    return ", ".join(part for part in ("" if percent is None else f"{percent:.0f} %", short(step)) if part)
