"""Pages of lists, and the cursors between them."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from grns.errors import BadInput


@dataclass(frozen=True)
class Page:
    """Some rows of a list, and the cursor behind which the rest begins; None where this is all.

    A page `is_partial` where it has fewer rows than were asked for, although there may be more: it has looked
    at as many as one answer may. The cursor goes on from there.
    """

    rows: list[dict[str, Any]]
    next_cursor: str | None
    is_partial: bool = False


def cursor(*parts: str) -> str:
    """Return the cursor that such parts, without blanks in them, make."""
    return base64.urlsafe_b64encode(" ".join(parts).encode()).decode().rstrip("=")


def parts(said: str) -> list[str]:
    """Return the parts of a cursor; `BadInput` where nobody was given such a one."""
    try:
        padded = (said + "=" * (-len(said) % 4)).encode("ascii")
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except ValueError as error:
        raise bad_cursor(said) from error
    if not text.isprintable():
        raise bad_cursor(said)
    return text.split(" ")


def bad_cursor(said: str) -> BadInput:
    """Return what is raised for a cursor that is none of this list."""
    return BadInput("bad_cursor", f"{ascii(said)[:100]} is no cursor of such a list")
