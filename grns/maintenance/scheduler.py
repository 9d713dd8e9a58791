"""The retry scheduler: queues tasks that are due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from grns.maintenance.scan_window import ScanWindow
from grns.nats import JetStream
from grns.postgres.database import Database, Row
from grns.runtime.service import PeriodicService
from grns.tasks.announce import QueuedTask, announce_queued
from grns.telemetry.service_signals import TasksPromoted

_BATCH = 500


@dataclass(slots=True, kw_only=True, eq=False)
class RetryScheduler(PeriodicService):
    """Promotes in batches, and looks which pools are full; any number of schedulers may run."""

    database: Database
    transport: JetStream
    name: str = "retry_scheduler"
    tick_seconds: float = 1.0
    _scan_window: ScanWindow = field(default_factory=ScanWindow, init=False)

    async def tick(self) -> float:
        """Promote one batch."""
        rows = await promote(self.database, _BATCH, self._scan_window.seconds())
        if rows:
            self.emit(TasksPromoted(len(rows)))
            queued = [
                QueuedTask(row["workspace"], row["agent_type"], row["id"])
                for row in rows
                if row["status"] == "queued"
            ]
            await announce_queued(self.transport, queued)
        if len(rows) == _BATCH:
            return 0.0
        self._scan_window.note_end()
        await self.database.run("fill_quotas")
        return self.tick_seconds


async def promote(database: Database, limit: int, scan_window_seconds: float | None) -> Sequence[Row]:
    """Queue tasks that are due: rows of id, workspace, agent_type, was_due_at, queued_reason, status.

    Those that fall under limits wait for room.
    """
    return await database.run("promote", limit, scan_window_seconds)
