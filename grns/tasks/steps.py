"""The steps of a task, as its attempts have recorded them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from grns.model.json import loads_stored
from grns.postgres.database import Database, Session, build
from grns.postgres.paging import Page, bad_cursor, cursor, instant, page_of, parts

_MOST_SHOWN_BYTES = 4096
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TaskStep:
    """A step that an attempt has recorded.

    `kind` is `step`, `sleep` (`value` has its end, `until`, in seconds since 1970) or `fan_out` (`value` has
    the ids of the tasks). A value of more than 4 KiB is None: `value_bytes` is its size.
    """

    name: str
    kind: str
    attempt: int
    recorded_at: datetime
    value_bytes: int
    value: Any


async def list_steps(
    database: Database | Session, task_id: str, *, workspace: str, limit: int, after: str | None = None
) -> Page[TaskStep]:
    """Return the steps of a task in the order in which they were recorded."""
    since, name = (_FIRST, "") if after is None else _place(after)
    rows = await database.run("list_steps", task_id, workspace, since, name, limit + 1, _MOST_SHOWN_BYTES)
    steps = [
        build(TaskStep, {**row, "value": None if row["value"] is None else loads_stored(row["value"])})
        for row in rows
    ]
    return page_of(steps, limit, lambda one: cursor(one.recorded_at, one.name.encode().hex()))


def _place(said: str) -> tuple[datetime, str]:
    try:
        time, name = parts(said)
        return instant(time), bytes.fromhex(name).decode()
    except ValueError as error:
        raise bad_cursor(said) from error
