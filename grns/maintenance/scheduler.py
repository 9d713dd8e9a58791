"""The retry scheduler: queues what is due."""

from __future__ import annotations

from grns.maintenance.due import promote
from grns.maintenance.scan_window import ScanWindow
from grns.model import subjects
from grns.nats.interface import Transport
from grns.postgres.database import Database
from grns.runtime.service import PeriodicService
from grns.telemetry.emit import Emit
from grns.telemetry.facts.upkeep import TasksPromoted

_BATCH = 500


class RetryScheduler:
    """Promotes in batches; any number of schedulers may run."""

    def __init__(self, *, database: Database, transport: Transport, tick_seconds: float, emit: Emit) -> None:
        self._database = database
        self._transport = transport
        self._tick_seconds = tick_seconds
        self._emit = emit
        self._scan_window = ScanWindow()
        self._daemon = PeriodicService("retry_scheduler", self._tick, emit=emit)

    async def run(self) -> None:
        """Promote until stopped."""
        await self._daemon.run()

    def stop(self) -> None:
        """Ask for the end."""
        self._daemon.stop()

    async def _tick(self) -> float:
        rows = await promote(self._database, _BATCH, self._scan_window.seconds())
        if rows:
            self._emit(TasksPromoted(len(rows)))
            await self._transport.nudge(subjects.RELAY_NUDGE)
        if len(rows) == _BATCH:
            return 0.0
        self._scan_window.note_end()
        return self._tick_seconds
