"""Pages of lists, and the cursors between them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from grns.errors import InvalidInputError

Item = TypeVar("Item")


@dataclass(frozen=True)
class Page(Generic[Item]):
    """Some rows of a list, and the cursor of the next page; None on the last page.

    A page `is_partial` if it is not full although there may be more rows: it has read as many rows as one
    request may.
    """

    rows: list[Item]
    next_cursor: str | None
    is_partial: bool = False


def page_of(found: Sequence[Item], limit: int, cursor_of: Callable[[Item], str]) -> Page[Item]:
    """Return the first `limit` of the rows found; if there are more, with the cursor of the last one."""
    rows = list(found[:limit])
    return Page(rows, cursor_of(rows[-1]) if len(found) > limit else None)


def cursor(*parts: datetime | str | int) -> str:
    """Return the cursor of these parts; no text may contain a space."""
    texts = (part.isoformat() if isinstance(part, datetime) else str(part) for part in parts)
    return base64.urlsafe_b64encode(" ".join(texts).encode()).decode().rstrip("=")


def parts(said: str) -> list[str]:
    """Return the parts of a cursor; raises `InvalidInputError` for an invalid one."""
    try:
        padded = (said + "=" * (-len(said) % 4)).encode("ascii")
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except ValueError as error:
        raise bad_cursor(said) from error
    if not text.isprintable():
        raise bad_cursor(said)
    return text.split(" ")


def instant(text: str) -> datetime:
    """Return the time in a part of a cursor; raises `ValueError` if it is not one."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(text)
    try:
        return time.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(text) from error


def place(said: str) -> tuple[datetime, str]:
    """Return time and name in the cursor of a list that is ordered by both."""
    *_, at, named = ["", *parts(said)]
    try:
        return instant(at), named
    except ValueError as error:
        raise bad_cursor(said) from error


def bad_cursor(cursor: str) -> InvalidInputError:
    """Return the error for an invalid cursor."""
    return InvalidInputError("bad_cursor", f"{ascii(cursor)[:100]} is not a cursor of this list")
