"""The shared execute subject: commands of any system, in any language, with nothing but a worker running.

A task of this pool for which a slot is free is claimed, and the delivery acked once the claim has committed.
For any other task a new command for its own priority subject is written to the log.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import structlog

from grns.errors import UnavailableError
from grns.model.outcome import Claim, Unclaimed
from grns.nats.delivery import Delivery
from grns.postgres.database import Database
from grns.telemetry.signal import Emit
from grns.worker.claims import Claimant, dispatch, explain
from grns.worker.executor import Executor
from grns.worker.slots import Slots

_log = structlog.get_logger()


class CommandRouter:
    """Settles commands of the shared subject; `start` runs a claimed task in the slot taken for it."""

    def __init__(
        self,
        *,
        claimer: Executor,
        database: Database,
        claimant: Claimant,
        slots: Slots,
        start: Callable[[Claim], None],
        emit: Emit,
    ) -> None:
        self._claimer = claimer
        self._database = database
        self._claimant = claimant
        self._slots = slots
        self._start = start
        self._emit = emit

    async def receive(self, delivery: Delivery) -> None:
        """Take one command in."""
        command = await self._claimer.read(delivery)
        if command is None:
            return
        if command.agent_type != self._claimant.agent_type or not self._slots.try_take():
            await self._send_on(command.task_id, command.message_id, delivery)
            return
        claim = None
        try:
            claim = await self._claimer.claim(command, delivery, "shared", on_other_pool=self._send_on)
        finally:
            if claim is None:
                self._slots.give()
        if claim is not None:
            self._start(claim)
            await delivery.ack()

    async def _send_on(self, task_id: str, message_id: UUID, delivery: Delivery) -> None:
        try:
            if await dispatch(self._database, task_id, message_id):
                _log.debug("command_dispatched", task_id=task_id)
                await delivery.ack()
                return
            reason = await explain(self._database, task_id, self._claimant)
        except UnavailableError as error:
            await self._claimer.defer(delivery, task_id, error)
            return
        await self._claimer.refuse(Unclaimed(task_id, reason), delivery)
