"""Pages of lists: what asks for them, and what they look like."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel

from grns.api.answer import Answer
from grns.errors import InvalidInputError
from grns.model import subjects
from grns.postgres.paging import Page, bad_cursor

Item = TypeVar("Item")

Limit = Annotated[int, Query(ge=1, le=1000, description="Rows at most.")]
Cursor = Annotated[
    str | None, Query(max_length=1000, description="Go on behind this place: `next_cursor` of a page before.")
]


class PageOf(BaseModel, Generic[Item]):
    """A page of a list.

    `next_cursor` is the cursor of the next page, or null. `is_partial` is true if the page has fewer rows
    than requested because it reached the limit of rows to scan.
    """

    items: list[Item]
    next_cursor: str | None
    is_partial: bool


def answer(page: Page[Any]) -> Answer:
    """Return a page as it is sent."""
    return listed(page.rows, page.next_cursor, is_partial=page.is_partial)


def listed(items: list[Any], next_cursor: str | None = None, *, is_partial: bool = False) -> Answer:
    """Return rows as a page that is sent."""
    return Answer({"items": items, "next_cursor": next_cursor, "is_partial": is_partial})


def name_in(cursor: str | None) -> str | None:
    """Return a cursor that is the name of the last row; `InvalidInputError` where it can be none."""
    if cursor is None:
        return None
    try:
        return subjects.token(cursor, name="cursor")
    except InvalidInputError as error:
        raise bad_cursor(cursor) from error
