"""Retention: what the janitor deletes once it is old.

Most of it is a rule for a table. Tasks are deleted by a walk over all of them: users' tables may refer to
tasks, and then Postgres may refuse to delete one, or wait for a transaction that holds what would go with
it. That keeps the one task, and neither its neighbours nor the walk.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate

from grns.archive.archive import MAIL, ArchivedRow, in_thread, write
from grns.archive.blobs import write_blob
from grns.archive.tasks import documents_of, write_tasks
from grns.errors import ContendedError, GrnsError, InvalidInputError, NotFoundError, OutcomeUnknownError
from grns.postgres.database import Connection, Database, Row, run
from grns.postgres.errors import translated
from grns.postgres.statements import compose
from grns.runtime.adaptive_batch import AdaptiveBatchSize
from grns.runtime.place import FilePlace
from grns.settings.groups import JanitorSettings
from grns.tasks.blobs import Blobs
from grns.telemetry.service_signals import RowsDeleted, TickFailed
from grns.telemetry.signal import Emit

DAY_SECONDS = 86_400.0
_PAGE = 1000
_SOME = 100  # messages, each with up to 500 words; blobs that are written to an archive
_ARCHIVED_BYTES = 16 * 1024**2  # at a time, of tasks with what belongs to them, of blobs, and of rows
_FEW = 20  # workflows, each with up to 10,000 needs
_STEP_SECONDS = 0.25
_WALK_EVERY_SECONDS = 3600.0
_HTTP_WORKER_DAYS = 1 / 24
# That others needed it has been read.
_UNNEEDED = "not exists (select from grns.needs e where e.needs = o.id and e.ended_as is null)"


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """Rows of a table that go so many days after a time in them, if a condition holds besides.

    Those that are worth an archive have a key, a number by which they are found in it.
    """

    name: str
    column: str
    days: Callable[[JanitorSettings], float]
    condition: str = "true"
    table: str = ""  # the rule's name by default
    rows: int = _PAGE  # of a page
    archived_by: str = ""  # the key

    def __post_init__(self) -> None:
        table = self.table or self.name
        old = {"table": table, "column": self.column, "condition": self.condition}
        compose(self.statement, "delete_old", **old)
        if key := self.archived_by:
            compose(f"find_old_{self.name}", "find_old", key=key, **old)
            compose(f"delete_archived_{self.name}", "delete_archived", table=table, key=key)

    @property
    def statement(self) -> str:
        """The name of the statement that deletes one page."""
        return f"delete_{self.name}"


RULES = (
    RetentionRule("processed_messages", "processed_at", lambda days: days.remembered_days),
    RetentionRule(
        "dead_letters",
        "updated_at",
        lambda days: days.dead_retention_days,
        "o.state <> 'new'",
    ),
    RetentionRule("old_workers", "last_seen_at", lambda days: days.task_retention_days, table="workers"),
    # Not within their lease, however long that is.
    RetentionRule(
        "http_workers",
        "last_seen_at",
        lambda _: _HTTP_WORKER_DAYS,
        "o.pid = 0 and o.last_seen_at < now() - o.lease_seconds * interval '1 second'",
        table="workers",
    ),
    # What replays published goes with the log.
    RetentionRule("replays", "ended_at", lambda days: days.log_retention_days),
    RetentionRule("task_minutes", "minute", lambda days: days.stats_retention_days),
    RetentionRule("issue_hours", "hour", lambda days: days.log_retention_days),
    # As long as the tasks that show them may be there; hours and facets go with an issue.
    RetentionRule("issues", "last_seen", lambda days: days.dead_retention_days, "o.open_count <= 0"),
    # As long as its tasks would be kept that have ended as it has; they go afterwards.
    RetentionRule(
        "workflows",
        "ended_at",
        lambda days: days.task_retention_days,
        f"o.status in ('succeeded', 'cancelled') and {_UNNEEDED}",
        rows=_FEW,
    ),
    RetentionRule(
        "failed_workflows",
        "ended_at",
        lambda days: days.dead_retention_days,
        f"o.status = 'failed' and {_UNNEEDED}",
        table="workflows",
        rows=_FEW,
    ),
    RetentionRule(
        MAIL,
        "created_at",
        lambda days: days.log_retention_days,
        "(o.acked_at is not null or o.expires_at < now())",
        rows=_SOME,
        archived_by="seq",
    ),
    # Tasks that were restored from an archive are kept until then.
    RetentionRule("kept_tasks", "until", lambda _: 0.0),
    RetentionRule("schedule_runs", "decided_at", lambda days: days.log_retention_days),
    RetentionRule("webhook_deliveries", "created_at", lambda days: days.webhook_retention_days),
)


@dataclass(frozen=True, slots=True)
class RetentionPage:
    """One page of a walk over the tasks: where it ended, how many it saw, how many it deleted."""

    last_id: str
    seen: int
    deleted: int


class _UndoneError(Exception):
    """Undoes a transaction that was only a try."""


async def delete_tasks(
    database: Database,
    after: str,
    limit: int,
    ended_seconds: float,
    dead_seconds: float,
    archive: FilePlace | None = None,
) -> RetentionPage:
    """Delete ended tasks past their retention from one page of ids; with an archive, write them there before.

    With an archive, only what it has goes: a task that has changed since it was written is written again.

    Raises:
        ContendedError: a task has changed meanwhile; none was deleted.
    """
    arguments = after, limit, ended_seconds, dead_seconds
    if archive is None:
        page = (await database.run("delete_tasks", *arguments, None, False))[0]
        return RetentionPage(page["last_id"] or "", page["seen"], page["deleted"])
    found = await database.run("find_doomed_tasks", *arguments)
    last_id, seen = found[0]["last_id"] or "", found[0]["seen"]
    sizes = accumulate(row["size"] or 0 for row in found)
    fitting = [row["id"] for row, size in zip(found, sizes, strict=True) if size <= _ARCHIVED_BYTES]
    if found[0]["id"] is None:
        return RetentionPage(last_id, seen, 0)
    ids = fitting or [found[0]["id"]]
    with suppress(_UndoneError):  # what Postgres refuses to delete would be written again and again
        async with _deleting(database) as connection:
            await run(connection, "delete_tasks", *arguments, ids, False)
            raise _UndoneError
    written = await write_tasks(database, archive, ids)
    async with _deleting(database) as connection:
        page, *rows = await run(connection, "delete_tasks", *arguments, list(written), True)
        gone = documents_of(rows)
        if any(written[task_id] != tables for task_id, tables in gone.items()):
            raise ContendedError("a task has changed while it was archived: it is archived again")
    if len(ids) < len(found):
        return RetentionPage(ids[-1], limit, len(gone))
    return RetentionPage(last_id, seen, len(gone))


@asynccontextmanager
async def _deleting(database: Database) -> AsyncIterator[Connection]:
    """Lend a connection in a transaction in which Postgres refuses at once, and writes times as always."""
    with translated():
        async with database.transaction() as connection:
            await connection.execute("set constraints all immediate; set local timezone to 'UTC'")
            yield connection


class ArchivedRetention:
    """Archives and deletes the rows of a rule, page by page; it begins each hour."""

    def __init__(
        self, database: Database, rule: RetentionRule, seconds: float, *, archive: FilePlace, emit: Emit
    ) -> None:
        self._database = database
        self._rule = rule
        self._seconds = seconds
        self._archive = archive
        self._emit = emit
        self._walk_at = 0.0

    async def step(self) -> bool:
        """Write rows to an archive, then delete them; True if there are more.

        Only what the archive has goes: a row that has changed since it was written is written again.
        """
        if time.monotonic() < self._walk_at:
            return False
        parts, is_cut = await self._find()
        lines = [
            ArchivedRow(row["workspace"], f"{row['key']:019}", row["at"], row["document"])
            for part in parts
            for row in part
        ]
        if lines:
            await write(self._archive, self._rule.name, lines)
        deleted = 0
        for part in parts:
            async with _deleting(self._database) as connection:
                rows = len(await self._delete(connection, part))
            if rows:
                self._emit(RowsDeleted(self._rule.name, rows))
            deleted += rows
        if not (is_cut and deleted):
            self._walk_at = time.monotonic() + _WALK_EVERY_SECONDS
        return is_cut and deleted > 0

    async def _find(self) -> tuple[list[list[Row]], bool]:
        """Return old rows, in parts that are deleted in a transaction each, and whether there are more.

        It tries to delete them, and undoes that: what Postgres refuses would be written again and again.

        Raises:
            InvalidInputError: Postgres refuses to delete one of them; a table of a user refers to it.
        """
        parts: list[list[Row]] = []
        seen = 0
        until = time.monotonic() + _STEP_SECONDS
        with suppress(_UndoneError):
            async with _deleting(self._database) as connection:
                found = await run(
                    connection, f"find_old_{self._rule.name}", _PAGE, self._seconds, _ARCHIVED_BYTES
                )
                for start in range(0, len(found), self._rule.rows):
                    part = found[start : start + self._rule.rows]
                    seen += len(part)
                    keys = {row["key"] for row in await self._delete(connection, part)}
                    parts.append([row for row in part if row["key"] in keys])
                    if time.monotonic() > until:
                        break
                raise _UndoneError
        there = found[0]["found"] if found else 0
        return parts, seen < there or there == _PAGE

    async def _delete(self, connection: Connection, rows: Sequence[Row]) -> Sequence[Row]:
        keys, documents = [row["key"] for row in rows], [row["document"] for row in rows]
        return await run(connection, f"delete_archived_{self._rule.name}", keys, documents)


class BlobRetention:
    """Deletes blobs that nothing refers to, page by page; a walk over all of them begins each hour."""

    def __init__(
        self, database: Database, grace_seconds: float, *, emit: Emit, archive: FilePlace | None = None
    ) -> None:
        self._database = database
        self._grace_seconds = grace_seconds
        self._emit = emit
        self._archive = archive
        self._place = "", ""
        self._walk_at = 0.0

    async def step(self) -> bool:
        """Look at one page; True while the walk has not come to its end."""
        if time.monotonic() < self._walk_at:
            return False
        page, archived, end = _PAGE, None, None
        if self._archive is not None:
            page = _SOME
            archived, end = await self._archived(self._archive, page)
        try:
            rows = await self._database.run(
                "delete_blobs", *self._place, page, self._grace_seconds, *(archived or (None, None))
            )
        except InvalidInputError:  # a reference was committed meanwhile: it is seen in the next look
            if archived and archived[0]:  # not again what is archived: the next walk comes by here, too
                self._place = archived[0][-1], archived[1][-1]
            return True
        if rows and rows[0]["deleted"]:
            self._emit(RowsDeleted("blobs", rows[0]["deleted"]))
        if end is None and rows and rows[0]["seen"] == page:
            end = rows[0]["workspace"], rows[0]["sha256"]
        if end is not None:
            self._place = end
            return True
        self._place = "", ""
        self._walk_at = time.monotonic() + min(_WALK_EVERY_SECONDS, self._grace_seconds)
        return False

    async def _archived(
        self, archive: FilePlace, page: int
    ) -> tuple[tuple[list[str], list[str]], tuple[str, str] | None]:
        """Archive what the page would delete, up to some megabytes, and return what may be deleted then.

        Besides, where the next look begins; None: behind the page, for that was all of it. A blob is the same
        whenever it is written, so no transaction has to be held open for it.
        """
        rows = await self._database.run(
            "find_doomed_blobs", *self._place, page, self._grace_seconds, _ARCHIVED_BYTES
        )
        workspaces: list[str] = []
        digests: list[str] = []
        until = time.monotonic() + _STEP_SECONDS
        for row in rows:
            workspace, digest = row["workspace"], row["sha256"]
            with suppress(NotFoundError):  # another janitor was faster
                blobs = Blobs(self._database, workspace)
                await blobs.find(f"sha256-{digest}")
                try:
                    content = await blobs.get(f"sha256-{digest}")
                except NotFoundError as error:  # what the blob store has lost stays, for a person to see
                    self._emit(TickFailed("janitor", f"a blob is not archived: {error}"))
                    continue
                await in_thread(write_blob, archive, workspace, digest, content, row["media_type"])
                workspaces.append(workspace)
                digests.append(digest)
            if time.monotonic() > until:
                break
        is_cut = bool(rows) and (row is not rows[-1] or row["found"] > len(rows))
        return (workspaces, digests), (workspace, digest) if is_cut else None


class TaskRetention:
    """Deletes page by page; one that cannot go is halved until it is one task, and that is stepped past."""

    def __init__(
        self,
        database: Database,
        settings: JanitorSettings,
        *,
        emit: Emit,
        page_rows: int = _PAGE,
        archive: FilePlace | None = None,
    ) -> None:
        self._database = database
        self._archive = archive
        self._ended_seconds = settings.task_retention_days * DAY_SECONDS
        self._dead_seconds = settings.dead_retention_days * DAY_SECONDS
        self._emit = emit
        self._batch_size = AdaptiveBatchSize(page_rows)
        self._walked_to = ""
        self._walk_at = 0.0
        self._refused = 0

    async def step(self) -> bool:
        """Look at one page of tasks; True while the walk over all of them has not come to its end.

        Where many are referred to, pages are short: then some of them, as they cost no more than a long one.
        """
        if time.monotonic() < self._walk_at:
            return False
        until = time.monotonic() + _STEP_SECONDS
        while (is_more_left := await self._look_at_page()) and self._batch_size.is_short:
            if time.monotonic() > until:
                break
        return is_more_left

    async def _look_at_page(self) -> bool:
        rows = self._batch_size.rows
        try:
            page = await delete_tasks(
                self._database, self._walked_to, rows, self._ended_seconds, self._dead_seconds, self._archive
            )
        except (InvalidInputError, ContendedError, OutcomeUnknownError) as error:
            return self._batch_size.shorten() or await self._step_past(error)
        self._batch_size.lengthen()
        if page.deleted:
            self._emit(RowsDeleted("tasks", page.deleted))
        self._walked_to = page.last_id
        return page.seen == rows or self._end()

    async def _step_past(self, error: GrnsError) -> bool:
        task_id: str | None = (await self._database.run("next_task", self._walked_to))[0]["id"]
        if task_id is None:
            return self._end()
        self._refused += 1
        if self._refused == 1:  # where each task is referred to, each is refused: told of once is enough
            self._emit(TickFailed("janitor_retention", f"task {task_id} cannot be deleted: {error}"))
        self._walked_to = task_id
        return True

    def _end(self) -> bool:
        if self._refused > 1:
            self._emit(TickFailed("janitor_retention", f"{self._refused} tasks could not be deleted"))
        self._refused = 0
        self._walked_to = ""
        self._walk_at = time.monotonic() + _WALK_EVERY_SECONDS
        return False
