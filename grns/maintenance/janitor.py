"""The janitor: partitions, retention, pauses, gauges, failovers, and whether all is sound."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from grns.dead_letters.store import RejectedMessage, store_rejected
from grns.errors import GrnsError
from grns.maintenance import upkeep
from grns.maintenance.consistency import ConsistencyMonitor
from grns.maintenance.failovers import note_server
from grns.maintenance.gauges import GaugeCollector
from grns.maintenance.retention import Retention
from grns.model import subjects
from grns.model.envelope import rfc3339
from grns.nats.interface import Transport
from grns.postgres.database import Database
from grns.runtime.service import PeriodicService
from grns.tasks import pauses as pause
from grns.tasks.pause_pools import PausedSubjects
from grns.telemetry.emit import Emit
from grns.telemetry.facts.bus import RejectedMessageStored
from grns.telemetry.facts.process import ChoresFailed, PostgresFailedOver
from grns.telemetry.facts.upkeep import MessagesExpired, RowsDeleted

_DAY_SECONDS = 86_400.0
_PAGE = 1000
_PAGE_PAUSE_SECONDS = 0.05
_RETRY_SECONDS = 2.0
_HTTP_AGENT_SECONDS = 3600.0
_UNSERVED_EVERY_SECONDS = 60.0
_EXPIRY_EVERY_SECONDS = 60.0  # it looks at all open messages


class Janitor:
    """Keeps house in small batches; any number of janitors may run."""

    def __init__(
        self,
        *,
        database: Database,
        transport: Transport,
        tick_seconds: float,
        partition_rows: int,
        log_days: float,
        task_days: float,
        dead_days: float,
        processed_days: float,
        rejected_messages: int,
        rejected_bytes: int,
        minutes_days: float,
        webhook_days: float,
        unserved_after_seconds: float,
        verify_interval_seconds: float,
        stuck_after_seconds: float,
        emit: Emit,
    ) -> None:
        self._database = database
        self._transport = transport
        self._tick_seconds = tick_seconds
        self._partition_rows = partition_rows
        self._log_seconds = log_days * _DAY_SECONDS
        self._task_seconds = task_days * _DAY_SECONDS
        self._dead_seconds = dead_days * _DAY_SECONDS
        self._processed_seconds = processed_days * _DAY_SECONDS
        self._rejected_messages = rejected_messages
        self._rejected_bytes = rejected_bytes
        self._minutes_seconds = minutes_days * _DAY_SECONDS
        self._webhook_seconds = webhook_days * _DAY_SECONDS
        self._unserved_seconds = unserved_after_seconds
        self._emit = emit
        self._unserved_at = 0.0
        self._expiry_at = 0.0
        self._retention = Retention(
            database, ended_seconds=self._task_seconds, dead_seconds=self._dead_seconds, emit=emit
        )
        self._meter = GaugeCollector(database=database, transport=transport, emit=emit)
        self._paused_lanes = PausedSubjects(database=database, transport=transport)
        self._inspector = ConsistencyMonitor(
            database,
            stuck_after_seconds=stuck_after_seconds,
            every_seconds=verify_interval_seconds,
            emit=emit,
        )
        self._chores = self._all_chores()
        self._due_at = dict.fromkeys(self._chores, 0.0)
        self._is_stopping = False
        self._daemon = PeriodicService("janitor", self._tick, emit=emit)

    async def run(self) -> None:
        """Keep house until stopped."""
        await self._daemon.run()

    def stop(self) -> None:
        """Ask for the end."""
        self._is_stopping = True
        self._daemon.stop()

    def _all_chores(self) -> dict[str, Callable[[], Awaitable[bool]]]:
        """Return what there is to do, by name: each does a little, and says whether more is left."""
        return {
            "failover": self._notice_failover,
            "partitions": self._keep_partitions,
            **self._meter.chores,
            "pauses": lambda: self._forget("pauses", pause.end_lapsed(self._database, _PAGE)),
            "paused_lanes": self._paused_lanes.step,
            "unserved": self._bury_unserved,
            "processed_messages": lambda: self._forget(
                "processed_messages",
                upkeep.delete_processed(self._database, _PAGE, self._processed_seconds),
            ),
            "expired_messages": self._expire_messages,
            "dead_letters": lambda: self._forget(
                "dead_letters", upkeep.delete_messages(self._database, _PAGE, self._dead_seconds)
            ),
            "agents": lambda: self._forget(
                "agents",
                upkeep.delete_agents(self._database, _PAGE, self._task_seconds, _HTTP_AGENT_SECONDS),
            ),
            # What they published goes with the log, and so does that they did.
            "replays": lambda: self._forget(
                "replays", upkeep.delete_replays(self._database, _PAGE, self._log_seconds)
            ),
            "task_minutes": lambda: self._forget(
                "task_minutes", upkeep.delete_minutes(self._database, _PAGE, self._minutes_seconds)
            ),
            "issue_hours": lambda: self._forget(
                "issue_hours", upkeep.delete_issue_hours(self._database, _PAGE, self._log_seconds)
            ),
            # As long as the tasks that show them may be there.
            "issues": lambda: self._forget(
                "issues", upkeep.delete_issues(self._database, _PAGE, self._dead_seconds)
            ),
            "operations": lambda: self._forget(
                "operations", upkeep.delete_operations(self._database, _PAGE, self._log_seconds)
            ),
            "webhook_deliveries": lambda: self._forget(
                "webhook_deliveries",
                upkeep.delete_deliveries(self._database, _PAGE, self._webhook_seconds),
            ),
            "webhooks": lambda: self._forget("webhooks", upkeep.delete_webhooks(self._database, _PAGE)),
            "tasks": self._retention.step,
            "inspection": self._inspector.step,
        }

    async def _tick(self) -> float:
        failed: dict[str, list[str]] = {}
        for name in self._chores:
            if time.monotonic() >= self._due_at[name] and not self._is_stopping:
                self._due_at[name] = await self._do(name, failed)
        for error, names in failed.items():
            self._emit(ChoresFailed(error, names))
        return max(_PAGE_PAUSE_SECONDS, min(self._due_at.values()) - time.monotonic())

    async def _do(self, name: str, failed: dict[str, list[str]]) -> float:
        """Do one chore, and return when it is due again; a failure is noted, and ends no other chore."""
        try:
            is_more_left = await self._chores[name]()
        except GrnsError as error:
            failed.setdefault(str(error), []).append(name)
            return time.monotonic() + min(_RETRY_SECONDS, self._tick_seconds)
        return time.monotonic() + (_PAGE_PAUSE_SECONDS if is_more_left else self._tick_seconds)

    async def _notice_failover(self) -> bool:
        failover = await note_server(self._database)
        if failover is not None:
            self._emit(
                PostgresFailedOver(
                    failover.id, failover.old_timeline, failover.new_timeline, failover.is_same_cluster,
                    rfc3339(failover.last_seen_at), "`grns verify` lists what may have been lost",
                )
            )  # fmt: skip
        return False

    async def _keep_partitions(self) -> bool:
        await upkeep.keep_partitions(self._database, self._partition_rows, self._log_seconds)
        return False

    async def _forget(self, table: str, deleting: Awaitable[int]) -> bool:
        """Delete one page of what is past its time; True where the page was full."""
        rows = await deleting
        if rows:
            self._emit(RowsDeleted(table, rows))
        return rows >= _PAGE

    async def _expire_messages(self) -> bool:
        """Delete one page of the open messages beyond their bound; True if more may be left.

        Not refusing new ones instead: they would stay in the stream that all workspaces share, fill it, and
        be gone without a trace when the stream's own retention deletes them.
        """
        if time.monotonic() < self._expiry_at:
            return False
        messages = await upkeep.expire_messages(
            self._database, _PAGE, max_messages=self._rejected_messages, max_bytes=self._rejected_bytes
        )
        if messages:
            self._emit(MessagesExpired(messages))
        is_more_left = messages >= _PAGE
        if not is_more_left:
            self._expiry_at = time.monotonic() + _EXPIRY_EVERY_SECONDS
        return is_more_left

    async def _bury_unserved(self) -> bool:
        if time.monotonic() < self._unserved_at:
            return False
        self._unserved_at = time.monotonic() + min(_UNSERVED_EVERY_SECONDS, self._unserved_seconds)
        for message in await self._transport.unserved(
            subjects.CMD_STREAM, older_than_seconds=self._unserved_seconds
        ):
            self._emit(
                RejectedMessageStored("unserved", message.subject, message.seq, "no durable serves it")
            )
            corpse = RejectedMessage(
                "unserved", "no durable serves this subject", message.subject,
                message.stream, message.seq, 0, message.headers, message.body,
            )  # fmt: skip
            await store_rejected(self._database, [corpse])
            await self._transport.discard(message.stream, message.seq)
        return False
