"""Text helpers for people: durations, sizes, counts and safe output. No I/O, no clock."""

from __future__ import annotations

from datetime import datetime

# Up to so many seconds, in units of so many.
_UNITS = ((90.0, 1.0, "s"), (5400.0, 60.0, "min"), (129_600.0, 3600.0, "h"), (float("inf"), 86_400.0, "d"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
_MANY_HOURS = 72


def safe(text: str, *, keep: str = "") -> str:
    """Return text with everything a terminal could act on written out, as `\\x1b` and `\\u202e`.

    That is all that is no printable character: controls, changes of direction, what is invisible.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in keep else letter.encode("unicode_escape").decode()
        for letter in text
    )


def shortened(text: str, width: int) -> str:
    """Return the beginning of a text, marked where it is not all."""
    return text if len(text) <= width else text[: width - 1] + "…"


def bounded(text: str, width: int) -> str:
    """Return a text without its middle where it is too long: what is wrong is said at one of its ends."""
    half = (width - 3) // 2
    return text if len(text) <= width else f"{text[:half]} … {text[-half:]}"


def ago(instant: datetime, now: datetime) -> str:
    """Return how long ago something was, or in how long it will be."""
    seconds = (now - instant).total_seconds()
    if abs(seconds) < 1:
        return "now"
    distance = next(
        f"{int(abs(seconds) // unit)} {name}" for below, unit, name in _UNITS if abs(seconds) < below
    )
    return f"{distance} ago" if seconds > 0 else f"in {distance}"


def lasted(seconds: float | None) -> str:
    """Return a duration: `340 ms`, `12.5 s`, `9 s`, `4 min 10 s`, `3 h`, `3 h 20 min`; a dash for None."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 90:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= _MANY_HOURS:
        return _both(hours // 24, "d", hours % 24, "h")
    return _both(hours, "h", minutes, "min") if hours else _both(minutes, "min", rest, "s")


def _both(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large} {unit} {small} {small_unit}" if small else f"{large} {unit}"


def sized(count: int) -> str:
    """Return a number of bytes."""
    size, place = float(count), 0
    while size >= 1024 and place < len(_SIZES) - 1:
        size, place = size / 1024, place + 1
    return f"{size:.0f} {_SIZES[place]}" if place == 0 else f"{size:.1f} {_SIZES[place]}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 task`, `2 tasks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def attempts_of(counted: int, limit: int | None, between: str) -> str:
    """Return how many attempts count, of how many: without a limit while only the handler knows it."""
    return str(counted) if limit is None else f"{counted}{between}{limit}"
