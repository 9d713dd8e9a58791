"""Filters saved under a name in a workspace."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from grns.errors import InvalidInputError, NotFoundError
from grns.model.filter import Filter, parse
from grns.postgres import audit_log as change
from grns.postgres.database import Database, Session, run
from grns.postgres.paging import Page, bad_cursor, cursor, page_of, parts


@dataclass(frozen=True, slots=True)
class SavedFilter:
    """A saved filter."""

    name: str
    text: str
    saved_by: str | None
    saved_at: datetime


async def save(
    database: Database | Session, *, workspace: str, name: str, wanted: Filter, actor: str | None
) -> None:
    """Keep a filter under a name, in the place of the one that has it.

    Raises:
        InvalidInputError: `bad_filter`, the filter has no terms: an operation on it would mean all tasks.
    """
    if not wanted.terms:
        raise InvalidInputError("bad_filter", "a saved filter needs at least one term, such as status:dead")
    async with database.transaction() as connection:
        await run(connection, "save_filter", workspace, name, str(wanted), actor)
        await change.note(
            connection,
            workspace=workspace,
            kind="evt.filter.saved",
            actor=actor,
            payload={"name": name, "text": str(wanted)},
        )


async def read(database: Database | Session, *, workspace: str, name: str) -> Filter:
    """Return the filter of a name; `NotFoundError` where there is none."""
    rows = await database.run("read_filter", workspace, name)
    if not rows:
        raise _missing(name)
    return parse(rows[0]["text"])


async def list_saved(
    database: Database | Session, *, workspace: str, limit: int, after: str | None = None
) -> Page[SavedFilter]:
    """Return saved filters by name."""
    name = "" if after is None else _name(after)
    found = await database.fetch(SavedFilter, "list_filters", workspace, limit + 1, name)
    return page_of(found, limit, lambda one: cursor(one.name))


async def delete(database: Database | Session, *, workspace: str, name: str, actor: str | None) -> None:
    """Forget a filter; `NotFoundError` where there is none."""
    async with database.transaction() as connection:
        rows = await run(connection, "delete_filter", workspace, name)
        if not rows:
            raise _missing(name)
        await change.note(
            connection,
            workspace=workspace,
            kind="evt.filter.deleted",
            actor=actor,
            payload={"name": name, "text": rows[0]["text"]},
        )


def _name(after: str) -> str:
    name, *more = parts(after)
    if more:
        raise bad_cursor(after)
    return name


def _missing(name: str) -> NotFoundError:
    return NotFoundError(f"there is no saved filter {name}")
