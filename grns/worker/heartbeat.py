"""The heartbeat process: renews a worker's leases from outside the worker's process.

It reads the worker's lease table every third of a lease. It renews nothing for a worker that is gone or
stopped: such a worker's leases must expire.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from grns.errors import GrnsError
from grns.model import subjects
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.runtime.service import PeriodicLoop
from grns.telemetry.signal import Emit
from grns.worker import registry as agent
from grns.worker.leases import LeaseAnswer, SharedLeaseTable, SlotRecord, SlotState
from grns.worker.renewals import HeldLease, renew
from grns.worker.usage import ProcessUsage

_log = structlog.get_logger()

_ASK_AGAIN_SECONDS = 0.2
_BEAT_SECONDS = 0.2
_MOST_PER_STATEMENT = 5000


class Heartbeat:
    """Renews leases in one statement, and deliveries in the same tick, until stopped."""

    def __init__(
        self,
        *,
        database: Database,
        transport: JetStream,
        table: SharedLeaseTable,
        agent_id: str,
        workspace: str,
        lease_seconds: float,
        ack_wait_seconds: float,
        is_worker_running: Callable[[], bool],
        usage: ProcessUsage,
        emit: Emit,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_ready` is called once, after the first round that Postgres has answered."""
        self._on_ready = on_ready
        self._is_ready = False
        self._database = database
        self._transport = transport
        self._table = table
        self._agent_id = agent_id
        self._workspace = workspace
        self._lease_seconds = lease_seconds
        self._is_worker_running = is_worker_running
        self._usage = usage
        self._emit = emit
        self._progress_seconds = ack_wait_seconds / 3
        # After an outage reapers hold still for one lease: renewals must be tried well within it.
        self._renewing = PeriodicLoop(
            "heartbeat", self._renew, emit=emit, longest_pause_seconds=min(1.0, lease_seconds / 5)
        )
        self._progressing = PeriodicLoop("heartbeat_progress", self._progress, emit=emit)
        self._beating = PeriodicLoop("heartbeat_beat", self._beat, emit=emit)
        self._round_at = 0.0
        self._locked: set[tuple[int, int]] = set()

    async def run(self) -> None:
        """Keep leases until stopped."""
        self._table.note_start()
        await asyncio.gather(self._beating.run(), self._keep())

    def stop(self) -> None:
        """End all loops."""
        self._beating.stop()
        self._renewing.stop()
        self._progressing.stop()

    async def _keep(self) -> None:
        await self._transport.on_nudge(subjects.lease_nudge(self._agent_id), self._hurry)
        await asyncio.gather(self._renewing.run(), self._progressing.run())

    async def _beat(self) -> float:
        """Show the worker that this loop turns: a heartbeat process that is there and stuck keeps nothing."""
        self._table.beat()
        return _BEAT_SECONDS

    def _hurry(self) -> None:
        """Renew all at once: one of them is to be cancelled."""
        self._round_at = 0.0
        self._renewing.wake()

    async def _renew(self) -> float:
        """Renew all leases when it is time for that, and meanwhile those whose rows were locked then."""
        if not self._is_worker_running():
            return _ASK_AGAIN_SECONDS
        leases = [record for record in self._table.records() if record.state is SlotState.LEASE]
        try:
            if time.monotonic() < self._round_at:
                self._locked = await self._renew_all([one for one in leases if _key(one) in self._locked])
            else:
                await self._renew_round(leases)
        except GrnsError:
            self._table.note_failure()
            raise
        rest = self._round_at - time.monotonic()
        return max(0.0, min(rest, _ASK_AGAIN_SECONDS) if self._locked else rest)

    async def _renew_round(self, leases: list[SlotRecord]) -> None:
        # The next round's time is set first: who asks for one meanwhile gets it.
        began, due = time.monotonic(), self._round_at
        self._round_at = began + self._lease_seconds / 3
        try:
            self._locked = await self._renew_all(leases)
            late, took = began - due if due else 0.0, time.monotonic() - began
            if late + took > self._lease_seconds / 6:
                _log.warning("renewals_slow", leases=len(leases), seconds=round(took, 3), late=round(late, 3))
            await agent.touch(
                self._database,
                self._agent_id,
                idle_seconds=self._table.idle_seconds,
                running=len(leases),
                usage=self._usage.read(),
            )
        except GrnsError:
            self._round_at = 0.0
            raise
        self._table.announce()
        if not self._is_ready:
            self._is_ready = True
            self._on_ready()

    async def _renew_all(self, leases: list[SlotRecord]) -> set[tuple[int, int]]:
        """Renew these, in as few statements as may be; returns those whose rows were locked."""
        locked: set[tuple[int, int]] = set()
        for start in range(0, len(leases), _MOST_PER_STATEMENT):
            locked |= await self._renew_some(leases[start : start + _MOST_PER_STATEMENT])
        return locked

    async def _renew_some(self, leases: list[SlotRecord]) -> set[tuple[int, int]]:
        expires_at = time.monotonic() + self._lease_seconds
        held = [
            HeldLease(record.task_id, record.attempt, record.lease_id, self._workspace) for record in leases
        ]
        try:
            answers = await renew(self._database, held, self._lease_seconds)
        except GrnsError as error:
            _log.warning("renew_failed", leases=len(leases), error=str(error))
            raise
        verdicts, locked = [], set()
        for record, answer in zip(leases, answers, strict=True):
            if answer.verdict == "locked":
                locked.add(_key(record))
                continue
            verdict = LeaseAnswer.LOST if answer.verdict == "lost" else LeaseAnswer.RENEWED
            if answer.is_cancel_requested:
                verdict = LeaseAnswer.CANCEL_REQUESTED
            self._table.answer(record, verdict, expires_at)
            verdicts.append(verdict)
        self._table.announce()
        _log.debug(
            "leases_renewed",
            leases=len(leases),
            lost=verdicts.count(LeaseAnswer.LOST),
            cancelled=verdicts.count(LeaseAnswer.CANCEL_REQUESTED),
        )
        return locked

    async def _progress(self) -> float:
        if self._is_worker_running() and self._transport.is_connected:
            await self._transport.in_progress(
                [record.token for record in self._table.records() if record.token]
            )
        return self._progress_seconds


def _key(record: SlotRecord) -> tuple[int, int]:
    return record.slot, record.generation


def is_running(pid: int) -> bool:
    """Say whether a process, our parent, is there and not stopped."""
    if os.getppid() != pid:
        return False
    try:
        status = (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].strip()
        )
    except OSError:  # a system without /proc
        status = subprocess.run(
            ["/bin/ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout.strip()
    return status[:1] not in ("T", "t", "Z", "X")
