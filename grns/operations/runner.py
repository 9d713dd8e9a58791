"""The operation runner: redrives, discards and cancels in bulk, batch by batch.

It takes the operation that is due first by raising its epoch, reads what comes next, and moves that in one
statement, which also notes how far the operation is. A runner that is killed, frozen or cut off before the
commit has done nothing; after the commit the batch is not done again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from grns.errors import GrnsError, InvalidInputError
from grns.model import subjects
from grns.model.json import Limits
from grns.nats import JetStream
from grns.operations import batches
from grns.operations.batches import Moved, OperationBatch, Taken
from grns.operations.model import ENDED, State, batch_size
from grns.postgres.database import Database
from grns.runtime.adaptive_batch import AdaptiveBatchSize
from grns.runtime.service import PeriodicService
from grns.telemetry import failpoint
from grns.telemetry.task_signals import BatchMoved, OperationResumed, OperationStopped

_BATCH = 200
_PATCHED_BATCH = 50  # whose payloads are read, and written anew
_FOLLOWED = 500
# Longer than any page takes to be read: who is slower is overtaken, and has read in vain.
_LEASE_SECONDS = 15.0
_AGAIN_SECONDS = 2.0
_CANARY_SECONDS = 1.0
_FOLLOW_SECONDS = 1.0
_LEAST_PAUSE_SECONDS = 0.01


@dataclass(slots=True, kw_only=True, eq=False)
class OperationRunner(PeriodicService):
    """Runs operations in batches; any number of runners may run."""

    database: Database
    transport: JetStream
    owner: str
    payload_limits: Limits
    name: str = "operation_runner"
    tick_seconds: float = 1.0  # while nothing is due
    _batch_size: AdaptiveBatchSize = field(default_factory=lambda: AdaptiveBatchSize(_BATCH), init=False)

    async def end(self) -> None:
        """Give up what was taken, so that another runner need not wait for it."""
        with suppress(GrnsError):
            await batches.drop(self.database, self.owner)

    async def tick(self) -> float:
        """Move one batch of the operation that is due first, and follow what was redriven."""
        taken = await batches.take(
            self.database, self.owner, lease_seconds=_LEASE_SECONDS, pause_seconds=_AGAIN_SECONDS
        )
        if taken is not None:
            failpoint.reach("operation.taken")
            await self._go_on(taken)
        followed = await batches.follow(self.database, _FOLLOWED, pause_seconds=_FOLLOW_SECONDS)
        if taken is not None or (followed is not None and followed.ended == _FOLLOWED):
            return 0.0
        seconds = await batches.next_due(self.database, self.owner)
        return (
            self.tick_seconds
            if seconds is None
            else min(max(_LEAST_PAUSE_SECONDS, seconds), self.tick_seconds)
        )

    async def _go_on(self, taken: Taken) -> None:
        if taken.state is State.CANARY:
            await self._judge_canary(taken)
            return
        try:
            moved = await self._move(taken)
        except InvalidInputError as error:  # as a filter that this version does not know
            await batches.fail(self.database, taken, str(error))
            self._tell(taken, State.FAILED, str(error))
            return
        if moved is not None:
            await self._spread(moved)
            if moved.state in ENDED:
                self._tell(taken, moved.state, None)

    async def _move(self, taken: Taken) -> Moved | None:
        """Move the next batch; one that the database refuses is halved, a task that it refuses left out."""
        while True:
            batch = await batches.next_batch(self.database, taken, self._room(taken), self.payload_limits)
            failpoint.reach("operation.read")
            try:
                moved = await batches.move(self.database, taken, batch)
            except InvalidInputError as error:
                if not batch.candidates:
                    raise
                if len(batch.candidates) > 1:
                    self._batch_size.shorten()
                    continue
                batch = batch.refused(error.code)
                moved = await batches.move(self.database, taken, batch)
            self._batch_size.lengthen()
            self._note(taken, batch, moved)
            return moved

    def _room(self, taken: Taken) -> int:
        """Return how many tasks the next batch may have."""
        most = _BATCH if taken.patch is None else _PATCHED_BATCH
        wanted = 1 if taken.needs_canary else batch_size(taken.rate_per_minute, most)
        return min(wanted, self._batch_size.rows)

    def _note(self, taken: Taken, batch: OperationBatch, moved: Moved | None) -> None:
        if moved is not None and batch.candidates:
            skipped = len(batch.candidates) - moved.tasks
            self.emit(BatchMoved(taken.id, taken.action.value, moved.tasks, skipped))

    async def _spread(self, moved: Moved) -> None:
        """Tell those whom it concerns that something is new."""
        if moved.tasks or moved.state in ENDED:
            await self.transport.nudge(subjects.RELAY_NUDGE)
        for agent_id in moved.agent_ids:
            await self.transport.nudge(subjects.lease_nudge(agent_id))

    async def _judge_canary(self, taken: Taken) -> None:
        verdict = await batches.judge_canary(self.database, taken, pause_seconds=_CANARY_SECONDS)
        if verdict is not None and verdict["state"] != State.CANARY:
            await self.transport.nudge(subjects.RELAY_NUDGE)
            self._tell(taken, State(verdict["state"]), verdict["state_reason"])

    def _tell(self, taken: Taken, state: State, reason: str | None) -> None:
        if reason is None:
            self.emit(OperationResumed(taken.id, taken.action.value, state.value))
        else:
            self.emit(OperationStopped(taken.id, taken.action.value, state.value, reason))
