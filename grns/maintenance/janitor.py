"""The janitor: partitions, retention, pauses, gauges, failovers, and consistency checks."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from grns.dead_letters.store import RejectedMessage, store_rejected
from grns.errors import GrnsError, UnavailableError
from grns.maintenance.consistency import ConsistencyMonitor
from grns.maintenance.failovers import note_server
from grns.maintenance.gauges import GaugeCollector
from grns.maintenance.partitions import PARTITION_ROWS, archive_partitions, keep_partitions
from grns.maintenance.retention import (
    DAY_SECONDS,
    RULES,
    ArchivedRetention,
    BlobRetention,
    RetentionRule,
    TaskRetention,
)
from grns.model import subjects
from grns.model.envelope import rfc3339
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.runtime.place import FilePlace
from grns.runtime.service import PeriodicService
from grns.settings.groups import JanitorSettings
from grns.tasks import pauses
from grns.tasks.blobs import delete_objects
from grns.tasks.pause_pools import PausedSubjects
from grns.telemetry.service_signals import ChoresFailed, MessagesExpired, PostgresFailedOver, RowsDeleted
from grns.telemetry.task_signals import RejectedMessageStored

_PAGE = 1000
_OBJECTS = 20  # of the blob store, deleted one after another
_PAGE_PAUSE_SECONDS = 0.05
_RETRY_SECONDS = 2.0
_REST_SECONDS = 60.0
_UNSERVED_EVERY_SECONDS = 60.0
_EXPIRY_EVERY_SECONDS = 60.0  # it looks at all open messages

# Does a little, and returns whether more is left.
Chore = Callable[[], Awaitable[bool]]


@dataclass(slots=True, kw_only=True, eq=False)
class Janitor(PeriodicService):
    """Does its chores in small batches; any number of janitors may run."""

    database: Database
    transport: JetStream
    settings: JanitorSettings
    archive: FilePlace | None = None
    name: str = "janitor"
    _chores: dict[str, Chore] = field(init=False)
    _due_at: dict[str, float] = field(init=False)
    _unserved_at: float = field(default=0.0, init=False)
    _expiry_at: float = field(default=0.0, init=False)
    _rests_until: dict[str, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        database, settings = self.database, self.settings
        far: dict[str, Chore] = {
            "archived_partitions": self._archive_partitions,
            "tasks": TaskRetention(database, settings, emit=self.emit, archive=self.archive).step,
            "blobs": BlobRetention(
                database, settings.blob_grace_seconds, emit=self.emit, archive=self.archive
            ).step,
            "blob_objects": self._delete_objects,
        }
        self._chores = {
            "failover": self._notice_failover,
            "partitions": self._keep_partitions,
            **GaugeCollector(database=database, transport=self.transport, emit=self.emit).chores,
            "pauses": self._end_pauses,
            "paused_subjects": PausedSubjects(database=database, transport=self.transport).step,
            "unserved": self._reject_unserved,
            "expired_messages": self._expire_messages,
            **{rule.name: self._retention(rule) for rule in RULES},
            "operations": partial(self._delete, "operations", "delete_operations", self._log_seconds),
            "webhooks": partial(self._delete, "webhooks", "delete_webhooks"),
            "usage": self._sum_usage,  # before its tasks go
            **{name: partial(self._unless_resting, name, chore) for name, chore in far.items()},
            "inspection": ConsistencyMonitor(
                database,
                stuck_after_seconds=settings.stuck_after_seconds,
                every_seconds=settings.verify_interval_seconds,
                emit=self.emit,
            ).step,
        }
        self._due_at = dict.fromkeys(self._chores, 0.0)

    def _retention(self, rule: RetentionRule) -> Chore:
        seconds, table = rule.days(self.settings) * DAY_SECONDS, rule.table or rule.name
        if self.archive is not None and rule.archived_by:
            rows = ArchivedRetention(self.database, rule, seconds, archive=self.archive, emit=self.emit)
            return partial(self._unless_resting, rule.name, rows.step)
        return partial(self._delete, table, rule.statement, seconds, page=rule.rows)

    @property
    def _log_seconds(self) -> float:
        return self.settings.log_retention_days * DAY_SECONDS

    async def tick(self) -> float:
        """Do the chores that are due."""
        failed: dict[str, list[str]] = {}
        for name in self._chores:
            if time.monotonic() >= self._due_at[name] and not self._is_stopping:
                self._due_at[name] = await self._do(name, failed)
        for error, names in failed.items():
            self.emit(ChoresFailed(error, names))
        return max(_PAGE_PAUSE_SECONDS, min(self._due_at.values()) - time.monotonic())

    async def _do(self, name: str, failed: dict[str, list[str]]) -> float:
        """Do one chore, and return when it is due again; a failure is noted, and ends no other chore."""
        interval = self.settings.janitor_interval_seconds
        try:
            is_more_left = await self._chores[name]()
        except GrnsError as error:
            failed.setdefault(str(error), []).append(name)
            return time.monotonic() + min(_RETRY_SECONDS, interval)
        return time.monotonic() + (_PAGE_PAUSE_SECONDS if is_more_left else interval)

    async def _notice_failover(self) -> bool:
        failover = await note_server(self.database)
        if failover is not None:
            self.emit(
                PostgresFailedOver(
                    failover.id, failover.old_timeline, failover.new_timeline, failover.is_same_cluster,
                    rfc3339(failover.last_seen_at), "`grns admin verify` lists what may have been lost",
                )
            )  # fmt: skip
        return False

    async def _keep_partitions(self) -> bool:
        is_archived = self.archive is not None
        await keep_partitions(self.database, PARTITION_ROWS, self._log_seconds, is_archived=is_archived)
        return False

    async def _archive_partitions(self) -> bool:
        return self.archive is not None and await archive_partitions(self.database, self.archive)

    async def _unless_resting(self, name: str, chore: Chore) -> bool:
        """Do a chore that may need the archive or the blob store: after a failure, a minute later again."""
        if time.monotonic() < self._rests_until.get(name, 0.0):
            return False
        try:
            return await chore()
        except UnavailableError:
            if self.archive is not None or self.database.blob_rules.place is not None:
                self._rests_until[name] = time.monotonic() + _REST_SECONDS
            raise

    async def _delete_objects(self) -> bool:
        """Delete objects of the blob store that no blob has."""
        return await delete_objects(self.database, _OBJECTS) == _OBJECTS

    async def _end_pauses(self) -> bool:
        return self._note_deleted("pauses", await pauses.end_lapsed(self.database, _PAGE))

    async def _sum_usage(self) -> bool:
        """Add one page of what attempts have used to the sums of days."""
        (row,) = await self.database.run("sum_usage", _PAGE)
        return bool(row["summed"] == _PAGE)

    async def _delete(self, table: str, statement: str, *retention_seconds: float, page: int = _PAGE) -> bool:
        """Delete one page of rows past their retention; True if the page was full."""
        rows = await self.database.run(statement, page, *retention_seconds)
        return self._note_deleted(table, len(rows), page)

    def _note_deleted(self, table: str, rows: int, page: int = _PAGE) -> bool:
        if rows:
            self.emit(RowsDeleted(table, rows))
        return rows >= page

    async def _expire_messages(self) -> bool:
        """Delete one page of the open messages beyond their bound; True if more may be left.

        Not refusing new ones instead: they would stay in the stream that all workspaces share, fill it, and
        be gone without a trace when the stream's own retention deletes them.
        """
        if time.monotonic() < self._expiry_at:
            return False
        settings = self.settings
        messages = await expire_messages(
            self.database,
            _PAGE,
            max_messages=settings.rejected_max_messages,
            max_bytes=settings.rejected_max_bytes,
        )
        if messages:
            self.emit(MessagesExpired(messages))
        is_more_left = messages >= _PAGE
        if not is_more_left:
            self._expiry_at = time.monotonic() + _EXPIRY_EVERY_SECONDS
        return is_more_left

    async def _reject_unserved(self) -> bool:
        if time.monotonic() < self._unserved_at:
            return False
        unserved_seconds = self.settings.unserved_after_seconds
        self._unserved_at = time.monotonic() + min(_UNSERVED_EVERY_SECONDS, unserved_seconds)
        for message in await self.transport.unserved(
            subjects.CMD_STREAM, older_than_seconds=unserved_seconds
        ):
            self.emit(RejectedMessageStored("unserved", message.subject, message.seq, "no durable serves it"))
            rejected = RejectedMessage(
                "unserved", "no durable serves this subject", message.subject,
                message.stream, message.seq, 0, message.headers, message.body,
            )  # fmt: skip
            await store_rejected(self.database, [rejected])
            await self.transport.discard(message.stream, message.seq)
        return False


async def expire_messages(database: Database, limit: int, *, max_messages: int, max_bytes: int) -> int:
    """Delete the oldest open messages beyond the bounds of a workspace, and log each; return how many."""
    return len(await database.run("expire_messages", max_messages, max_bytes, limit))
