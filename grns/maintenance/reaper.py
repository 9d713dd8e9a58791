"""The reaper: takes tasks back whose lease is over."""

from __future__ import annotations

from grns.maintenance.due import reap, tick_reaper
from grns.maintenance.scan_window import ScanWindow
from grns.model import subjects
from grns.nats.interface import Transport
from grns.postgres.database import Database
from grns.runtime.service import PeriodicService
from grns.telemetry.emit import Emit
from grns.telemetry.facts.upkeep import ReaperGraceStarted, TasksReaped

_BATCH = 200


class Reaper:
    """Reaps in batches; any number of reapers may run."""

    def __init__(
        self,
        *,
        database: Database,
        transport: Transport,
        tick_seconds: float,
        lease_seconds: float,
        http_lease_seconds: float,
        emit: Emit,
    ) -> None:
        self._database = database
        self._transport = transport
        self._tick_seconds = tick_seconds
        self._lease_seconds = lease_seconds
        self._http_lease_seconds = http_lease_seconds
        self._emit = emit
        self._scan_window = ScanWindow()
        self._is_holding = False
        self._daemon = PeriodicService("reaper", self._tick, emit=emit)

    async def run(self) -> None:
        """Reap until stopped."""
        await self._daemon.run()

    def stop(self) -> None:
        """Ask for the end."""
        self._daemon.stop()

    async def _tick(self) -> float:
        if await tick_reaper(
            self._database, self._lease_seconds, self._tick_seconds, self._http_lease_seconds
        ):
            self._scan_window.forget()  # due tasks may lie far back when the grace period ends
            if not self._is_holding:
                self._emit(ReaperGraceStarted())
            self._is_holding = True
            return self._tick_seconds
        self._is_holding = False
        rows = await reap(self._database, _BATCH, self._scan_window.seconds())
        for row in rows:
            self._emit(
                TasksReaped(row["id"], row["agent_id"], row["attempt"], row["trace_id"], row["status"])
            )
        if rows:
            await self._transport.nudge(subjects.RELAY_NUDGE)
        if len(rows) == _BATCH:
            return 0.0
        self._scan_window.note_end()
        return self._tick_seconds
