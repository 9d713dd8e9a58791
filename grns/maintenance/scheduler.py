"""The retry scheduler: queues tasks that are due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from grns.maintenance.scan_window import ScanWindow
from grns.nats import JetStream
from grns.postgres import audit_log
from grns.postgres.database import Database, Row, run
from grns.runtime.service import PeriodicService
from grns.tasks import pauses
from grns.tasks.announce import QueuedTask, announce_queued
from grns.tasks.pause_pools import tell_broker
from grns.tasks.pauses import Pause
from grns.telemetry.service_signals import TasksPromoted

_BATCH = 500


@dataclass(slots=True, kw_only=True, eq=False)
class RetryScheduler(PeriodicService):
    """Promotes in batches, and looks which pools are full and which budgets used up; any number may run."""

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
        (row,) = await self.database.run("fill_quotas")
        if row["has_budgets"]:
            await tell_broker(self.transport, await look_at_budgets(self.database))
        return self.tick_seconds


async def look_at_budgets(database: Database) -> list[tuple[Pause, bool]]:
    """Note what was used of budgets, log which have come to be used up, and pause or resume their pools.

    Returns the pauses, each with whether it has begun.
    """
    async with database.transaction() as connection:
        for row in await run(connection, "look_at_budgets"):
            exceeded = dict(row)
            await audit_log.note(
                connection, workspace=exceeded.pop("workspace"), kind="evt.budget.exceeded", actor=None,
                payload=exceeded,
            )  # fmt: skip
        return await pauses.follow_budgets(connection)


async def promote(database: Database, limit: int, scan_window_seconds: float | None) -> Sequence[Row]:
    """Queue tasks that are due: rows of id, workspace, agent_type, was_due_at, queued_reason, status.

    Those that fall under limits wait for room.
    """
    return await database.run("promote", limit, scan_window_seconds)
