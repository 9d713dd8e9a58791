"""Pages of lists, and the cursors between them."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from grns.errors import InvalidInputError


@dataclass(frozen=True)
class Page:
    """Some rows of a list, and the cursor behind which the rest begins; None where this is all.

    A page `is_partial` where it is not full although there may be more: it has looked at as many rows as one
    answer may. Its cursor goes on from there.
    """

    rows: list[dict[str, Any]]
    next_cursor: str | None
    is_partial: bool = False


def cursor(*parts: datetime | str | int) -> str:
    """Return the cursor that names a place by such parts; no text has a blank in it."""
    texts = (part.isoformat() if isinstance(part, datetime) else str(part) for part in parts)
    return base64.urlsafe_b64encode(" ".join(texts).encode()).decode().rstrip("=")


def parts(said: str) -> list[str]:
    """Return the parts of a cursor; `InvalidInputError` where nobody was given such a one."""
    try:
        padded = (said + "=" * (-len(said) % 4)).encode("ascii")
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except ValueError as error:
        raise bad_cursor(said) from error
    if not text.isprintable():
        raise bad_cursor(said)
    return text.split(" ")


def instant(text: str) -> datetime:
    """Return the time that a part of a cursor says; `ValueError` where it says none."""
    said = datetime.fromisoformat(text)
    if said.tzinfo is None:
        raise ValueError(text)
    try:
        return said.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(text) from error


def place(said: str) -> tuple[datetime, str]:
    """Return when and what a list goes on behind that goes by time, and then by name."""
    *_, at, named = ["", *parts(said)]
    try:
        return instant(at), named
    except ValueError as error:
        raise bad_cursor(said) from error


def bad_cursor(said: str) -> InvalidInputError:
    """Return what is raised for a cursor that is none of this list."""
    return InvalidInputError("bad_cursor", f"{ascii(said)[:100]} is no cursor of such a list")
