"""The reaper: takes tasks back whose lease is over, or whose attempt has stalled."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from grns.maintenance.scan_window import ScanWindow
from grns.model import subjects
from grns.nats import JetStream
from grns.postgres.database import Database, Row
from grns.runtime.service import PeriodicService
from grns.settings.groups import LeaseSettings
from grns.telemetry.task_signals import (
    AttemptCut,
    AttemptOverdue,
    AttemptStalled,
    ReaperGraceStarted,
    TaskReaped,
)

_BATCH = 200
_WARN_SECONDS = 15.0
_PRESENCE_SECONDS = 2.0


@dataclass(slots=True, kw_only=True, eq=False)
class Reaper(PeriodicService):
    """Reaps in batches; any number of reapers may run."""

    database: Database
    transport: JetStream
    settings: LeaseSettings
    name: str = "reaper"
    _scan_window: ScanWindow = field(default_factory=ScanWindow, init=False)
    _is_holding: bool = field(default=False, init=False)
    _warn_at: float = field(default=-math.inf, init=False)
    _presence_at: float = field(default=-math.inf, init=False)

    async def tick(self) -> float:
        """Reap one batch, unless reapers hold still after an outage."""
        settings = self.settings
        tick_seconds = settings.reap_tick_seconds
        if await tick_reaper(
            self.database, settings.lease_seconds, tick_seconds, settings.http_lease_seconds
        ):
            self._scan_window.forget()  # due tasks may lie far back when the grace period ends
            if not self._is_holding:
                self.emit(ReaperGraceStarted())
            self._is_holding = True
            return tick_seconds
        self._is_holding = False
        await self._end_stalled()
        for row in await self.database.run("end_ordered", settings.agent_grace_seconds, _BATCH):
            self.emit(AttemptCut(row["id"], row["agent_id"], row["attempt"], row["trace_id"]))
        rows = await reap(self.database, _BATCH, self._scan_window.seconds())
        for row in rows:
            self.emit(TaskReaped(row["id"], row["agent_id"], row["attempt"], row["trace_id"], row["status"]))
        if rows:
            await self.transport.nudge(subjects.RELAY_NUDGE)
        if len(rows) == _BATCH:
            return 0.0
        await self._warn_overdue()
        await self._note_presence()
        self._scan_window.note_end()
        return tick_seconds

    async def _end_stalled(self) -> None:
        for row in await self.database.run("end_stalled", _BATCH):
            self.emit(AttemptStalled(row["id"], row["agent_id"], row["attempt"], row["trace_id"]))

    async def _note_presence(self) -> None:
        """Log what has become of agents, every few seconds."""
        if time.monotonic() < self._presence_at:
            return
        rows = await self.database.run("note_presence", _BATCH)
        if rows:
            await self.transport.nudge(subjects.RELAY_NUDGE)
        if len(rows) < _BATCH:
            self._presence_at = time.monotonic() + _PRESENCE_SECONDS

    async def _warn_overdue(self) -> None:
        if time.monotonic() < self._warn_at:
            return
        settings = self.settings
        grace_seconds, stall_seconds = settings.overdue_after_seconds, settings.overdue_stall_seconds
        rows = await self.database.run("warn_overdue", grace_seconds, stall_seconds, _BATCH)
        for row in rows:
            self.emit(AttemptOverdue(row["task_id"], row["agent_id"], row["attempt"], row["trace_id"]))
        if len(rows) < _BATCH:
            self._warn_at = time.monotonic() + min(
                _WARN_SECONDS, max(grace_seconds, settings.reap_tick_seconds)
            )


async def tick_reaper(
    database: Database, lease_seconds: float, tick_seconds: float, http_lease_seconds: float = 60.0
) -> bool:
    """Note that a reaper lives; True while reapers must hold still after an outage.

    `http_lease_seconds` is the lease that HTTP workers have unless they ask for another one.
    """
    rows = await database.run("tick_reaper", lease_seconds, tick_seconds, http_lease_seconds)
    return bool(rows[0]["is_holding"])


async def reap(database: Database, limit: int, scan_window_seconds: float | None) -> Sequence[Row]:
    """Take back tasks whose lease is over: rows of id, status, agent_id, attempt, was_until.

    None during a hold, and none if the latest tick is older than an outage may be.
    """
    return await database.run("reap", limit, scan_window_seconds)
