"""Read what was archived: lists, rows, one task, its events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from grns.archive.archive import (
    EVENTS,
    TASKS,
    Archive,
    by_day,
    names,
    read_lines,
    read_manifest,
    span_of,
)
from grns.archive.place import ArchivePlace
from grns.errors import InvalidInputError, NotFoundError
from grns.postgres.paging import Page, cursor, page_of, parts

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ArchivedTask:
    """A task in an archive, with its line: the rows that it had in each table."""

    id: str
    archive: Archive
    line: str
    tables: dict[str, list[dict[str, Any]]]

    @property
    def row(self) -> dict[str, Any]:
        """Its row in `tasks`."""
        return self.tables[TASKS][0]


class ArchiveReader:
    """Reads the archives of one workspace."""

    def __init__(self, place: ArchivePlace, workspace: str) -> None:
        self._place = place
        self._workspace = workspace

    async def list(
        self, *, kind: str | None = None, limit: int = 50, after: str | None = None
    ) -> Page[Archive]:
        """Return a page of archives that have rows of the workspace, those of the latest day first.

        Args:
            kind: `tasks`, `events`, or the name of a table.
            limit: 1 to 1,000.
            after: `next_cursor` of the page before.
        """
        if not 1 <= limit <= 1000:
            raise InvalidInputError("bad_limit", "limit is 1 to 1,000")
        found = await names(self._place, kind or "")
        if after is not None:
            place = by_day(_name_in(after))
            found = [name for name in found if by_day(name) < place]
        archives: list[Archive] = []
        for name in found:
            archive = await read_manifest(self._place, name)
            if self._workspace in archive.workspaces:
                archives.append(archive)
            if len(archives) > limit:
                break
        return page_of(archives, limit, lambda one: cursor(one.name))

    async def rows(self, name: str) -> AsyncIterator[str]:
        """Yield the rows of an archive that are of the workspace, as JSON.

        Raises:
            NotFoundError: there is no such archive.
            ConflictError: it is damaged.
        """
        archive = await read_manifest(self._place, name)
        for line in await read_lines(self._place, archive):
            if workspace_of(json.loads(line)) == self._workspace:
                yield line

    async def task(self, task_id: str) -> ArchivedTask:
        """Return a task as it was archived last.

        Raises:
            NotFoundError: no archive has it.
        """
        (found,) = await self.tasks([task_id])
        return found

    async def tasks(self, task_ids: list[str]) -> list[ArchivedTask]:
        """Return tasks as they were archived last. Raises NotFoundError where no archive has one."""
        wanted, found = set(task_ids), dict[str, ArchivedTask]()
        for name in await names(self._place, TASKS):
            first, last, _ = span_of(name)
            if any(first <= task_id <= last for task_id in wanted):
                for task in await self.tasks_in(name):
                    if task.id in wanted and _is_later(task, found.get(task.id)):
                        found[task.id] = task
        for task_id in task_ids:
            if task_id not in found:
                raise NotFoundError(f"no archive of workspace {self._workspace} has task {task_id}")
        return [found[task_id] for task_id in task_ids]

    async def tasks_in(self, name: str) -> list[ArchivedTask]:
        """Return the tasks of an archive that are of the workspace. Raises as `rows` does."""
        archive = await read_manifest(self._place, name)
        if archive.kind != TASKS:
            raise InvalidInputError("bad_archive", f"{name} has {archive.kind}: only tasks are restored")
        said = [(line, json.loads(line)) for line in await read_lines(self._place, archive)]
        tasks = [ArchivedTask(tables.pop("id"), archive, line, tables) for line, tables in said]
        return [task for task in tasks if task.row["workspace"] == self._workspace]

    async def events_of(self, task: ArchivedTask, progress: Progress) -> AsyncIterator[str]:
        """Yield the archived events of a task, the oldest first: it reads all archives of its time."""
        since = datetime.fromisoformat(task.row["created_at"])
        found = sorted(await names(self._place, EVENTS), key=span_of)
        for number, name in enumerate(found):
            progress(number, len(found))
            archive = await read_manifest(self._place, name)
            if archive.last_at >= since and archive.first_at <= task.archive.written_at:
                for line in await read_lines(self._place, archive):
                    if task.id in line and json.loads(line)["task_id"] == task.id:
                        yield line
        progress(len(found), len(found))


def workspace_of(row: dict[str, Any]) -> str:
    """Return the workspace of an archived row, whichever kind it is of."""
    workspace: str = row[TASKS][0]["workspace"] if TASKS in row else row["workspace"]
    return workspace


def _is_later(task: ArchivedTask, other: ArchivedTask | None) -> bool:
    return other is None or task.archive.written_at > other.archive.written_at


def _name_in(after: str) -> str:
    (name, *rest) = parts(after)
    if rest or name.count("/") != 2:
        raise InvalidInputError("bad_cursor", f"{ascii(after)[:100]} is not a cursor of this list")
    return name
