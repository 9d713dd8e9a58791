"""Read what was archived: lists, rows, one task, its events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from grns.archive.archive import (
    EVENTS,
    KINDS,
    TASKS,
    Archive,
    names,
    read_lines,
    read_manifest,
    span_of,
)
from grns.errors import ConflictError, InvalidInputError, NotFoundError
from grns.postgres.paging import Page, bad_cursor, cursor, page_of, parts
from grns.runtime.place import FilePlace

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

    @property
    def age(self) -> tuple[int, datetime, datetime]:
        """The larger it is, the later the task was so."""
        updated_at = datetime.fromisoformat(self.row["updated_at"])
        return self.row["version"], updated_at, self.archive.written_at


class ArchiveReader:
    """Reads the archives of one workspace. What is damaged, or gone, is passed over: `unread` says why."""

    def __init__(self, place: FilePlace, workspace: str) -> None:
        self._place = place
        self._workspace = workspace
        self.unread: dict[str, str] = {}

    async def list(self, *, kind: str = TASKS, limit: int = 50, after: str | None = None) -> Page[Archive]:
        """Return a page of archives that have rows of the workspace, the latest first.

        Args:
            kind: `tasks`, `events` or `mail`.
            limit: 1 to 1,000.
            after: `next_cursor` of the page before.
        """
        if kind not in KINDS:
            raise InvalidInputError("bad_kind", f"{ascii(kind)[:100]} is none of {', '.join(KINDS)}")
        if not 1 <= limit <= 1000:
            raise InvalidInputError("bad_limit", "limit is 1 to 1,000")
        found = await names(self._place, kind)
        if after is not None:
            (last, *rest) = parts(after)
            if rest:
                raise bad_cursor(after)
            found = [name for name in found if name < last]
        archives: list[Archive] = []
        for name in found:
            async with self._noting(name):
                archive = await read_manifest(self._place, name)
                if count := archive.workspaces.get(self._workspace):
                    own = {self._workspace: count}
                    archives.append(replace(archive, rows=count, workspaces=own))
            if len(archives) > limit:
                break
        return page_of(archives, limit, lambda one: cursor(one.name))

    async def rows(self, name: str) -> AsyncIterator[str]:
        """Yield the rows of an archive that are of the workspace, as JSON.

        Raises:
            NotFoundError: no archive has this name, or it has no rows of the workspace.
            ConflictError: it is damaged.
        """
        archive = await self._own(name)
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

    async def tasks(self, task_ids: Sequence[str]) -> Sequence[ArchivedTask]:
        """Return tasks as they were archived last. Raises NotFoundError where no archive has one."""
        wanted = set(task_ids)
        found: dict[str, ArchivedTask] = {}
        for name in await names(self._place, TASKS):
            first, last, _ = span_of(name)
            if any(first <= task_id <= last for task_id in wanted):
                async with self._noting(name):
                    for task in await self._tasks_of(await read_manifest(self._place, name)):
                        if task.id in wanted and (task.id not in found or task.age > found[task.id].age):
                            found[task.id] = task
        for task_id in task_ids:
            if task_id not in found:
                raise NotFoundError(f"no archive of workspace {self._workspace} has task {task_id}")
        return [found[task_id] for task_id in dict.fromkeys(task_ids)]

    async def ids_in(self, name: str) -> Sequence[str]:
        """Return the ids of the tasks of an archive that are of the workspace. Raises as `rows` does."""
        archive = await self._own(name)
        if archive.kind != TASKS:
            raise InvalidInputError("bad_archive", f"{name} has {archive.kind}: only tasks are restored")
        return [task.id for task in await self._tasks_of(archive)]

    async def _own(self, name: str) -> Archive:
        archive = await read_manifest(self._place, name)
        if self._workspace not in archive.workspaces:
            raise NotFoundError(f"nothing in {name} is of workspace {self._workspace}")
        return archive

    async def _tasks_of(self, archive: Archive) -> Sequence[ArchivedTask]:
        said = [(line, json.loads(line)) for line in await read_lines(self._place, archive)]
        tasks = [ArchivedTask(tables.pop("id"), archive, line, tables) for line, tables in said]
        return [task for task in tasks if task.row["workspace"] == self._workspace]

    @asynccontextmanager
    async def _noting(self, name: str) -> AsyncIterator[None]:
        """Pass over an archive that cannot be read, and note why."""
        try:
            yield
        except (ConflictError, NotFoundError) as error:
            self.unread[name] = str(error)

    async def events_of(self, task: ArchivedTask, progress: Progress) -> AsyncIterator[str]:
        """Yield the archived events of a task, the oldest first: it reads all archives of its time."""
        since = datetime.fromisoformat(task.row["created_at"])
        found = sorted(await names(self._place, EVENTS), key=span_of)
        for number, name in enumerate(found):
            progress(number, len(found))
            lines: list[str] = []
            async with self._noting(name):
                archive = await read_manifest(self._place, name)
                if archive.last_at >= since and archive.first_at <= task.archive.written_at:
                    lines = await read_lines(self._place, archive)
            for line in lines:
                if task.id in line and json.loads(line)["task_id"] == task.id:
                    yield line
        progress(len(found), len(found))


def workspace_of(row: dict[str, Any]) -> str:
    """Return the workspace of an archived row, whichever kind it is of."""
    workspace: str = row[TASKS][0]["workspace"] if TASKS in row else row["workspace"]
    return workspace
