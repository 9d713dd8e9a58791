"""The walk: what happens to one task, from its command to the ack."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from grns.dead_letters.queue import DeadLetterQueue
from grns.errors import InvalidInputError, RejectedError, UnavailableError
from grns.model.json import Limits
from grns.model.outcome import Claim, Finished, Outcome, Unclaimed, Verb
from grns.model.task import random_uuid
from grns.nats.delivery import Delivery
from grns.telemetry import current, failpoint
from grns.telemetry.signal import Emit
from grns.telemetry.spans import NO_SPANS, Spans
from grns.telemetry.task_signals import (
    AttemptFinished,
    AttemptReleased,
    AttemptStarted,
    DeliveryDeferred,
    LeaseLost,
    NoHandler,
    TaskNotClaimed,
)
from grns.worker import command
from grns.worker.claims import Claims
from grns.worker.command import ExecuteCommand
from grns.worker.context import Context
from grns.worker.finishes import Finish, Finishes
from grns.worker.handlers import Handlers
from grns.worker.leases import Lease, LeaseManager
from grns.worker.slots import Slots

# How long to wait for a task that may still be uncommitted in its sender's transaction.
UNKNOWN_TASK_DELAYS = (1.0, 2.0, 4.0, 8.0)
_LONGEST_PAUSE_SECONDS = 1.0
_MOST_WARNINGS = 100
_NO_HEADERS: Mapping[str, str] = {}

Answer = TypeVar("Answer")
SendOn = Callable[[str, UUID, Delivery], Awaitable[None]]
PassOn = Callable[[Unclaimed, Delivery], Awaitable[None]]


class Claimer:
    """Takes a command to its claim; where nothing is claimed, the delivery ends as the reason demands."""

    def __init__(
        self,
        *,
        claims: Claims,
        dead_letters: DeadLetterQueue,
        envelope_limits: Limits,
        task_types: Sequence[str],
        emit: Emit,
        spans: Spans = NO_SPANS,
    ) -> None:
        self._claims = claims
        self._dead_letters = dead_letters
        self._envelope_limits = envelope_limits
        self._task_types = task_types
        self._emit = emit
        self._spans = spans
        self._without_handler: set[str] = set()
        # All are called with the task type of each command whose task nobody may claim while it is paused.
        self.on_paused: list[Callable[[str], None]] = []

    def close(self) -> None:
        """Claim nothing more; what runs goes on."""
        self._claims.close()

    async def read(self, delivery: Delivery) -> ExecuteCommand | None:
        """Return the command, or bury bytes that are none and end their delivery."""
        try:
            return command.read(delivery.body, subject=delivery.subject, limits=self._envelope_limits)
        except RejectedError as error:
            await self._dead_letters.reject(delivery, error.code, str(error))
            return None

    async def claim(
        self,
        wanted: ExecuteCommand,
        delivery: Delivery,
        source: str,
        *,
        token: str = "",
        on_other: SendOn | None = None,
        on_unhandled: PassOn | None = None,
    ) -> Claim | None:
        """Claim the task; where that cannot be, settle the delivery as the reason demands.

        `token` names the delivery that is kept in progress for as long as the task runs; `on_other` takes a
        task that turns out to be another agent type's, `on_unhandled` one of a type that is not served here.
        """
        began_ns = time.time_ns()
        try:
            answer = await self._claims.claim(wanted.task_id, wanted.message_id, token=token)
        except UnavailableError as error:
            await self.put_off(delivery, wanted.task_id, error)
            return None
        except InvalidInputError as error:
            await self._dead_letters.reject(delivery, error.code, str(error))
            return None
        if isinstance(answer, Unclaimed):
            if answer.reason == "other_agent_type" and on_other is not None:
                await on_other(wanted.task_id, wanted.message_id, delivery)
            elif answer.reason == "no_handler" and on_unhandled is not None:
                await on_unhandled(answer, delivery)
            else:
                await self.refuse(answer, delivery)
            return None
        # A header is a look at bytes that nothing else looks at.
        headers = delivery.headers if self._spans.is_on else _NO_HEADERS
        self.note_claim(answer, source, began_ns, headers)
        return answer

    async def refuse(self, answer: Unclaimed, delivery: Delivery) -> None:
        """Settle a command that claimed nothing: ack and count, unless it may yet claim something."""
        self._emit(TaskNotClaimed(answer.id, answer.reason))
        if answer.reason == "no_handler" and answer.task_type is not None:
            self._note_no_handler(answer.id, answer.task_type)
        if answer.reason == "paused" and answer.task_type is not None:
            for tell in self.on_paused:
                tell(answer.task_type)
        if answer.reason == "locked":
            await self._defer(delivery, answer.id, "locked", "", 1.0)
        elif answer.reason == "stopping":
            await delivery.nak()  # for another worker, at once
        elif answer.reason != "unknown_task":
            await delivery.ack()
        elif delivery.delivery_count > len(UNKNOWN_TASK_DELAYS):
            await self._dead_letters.reject(delivery, "unknown_task", f"there is no task {answer.id}")
        else:
            await delivery.nak(UNKNOWN_TASK_DELAYS[delivery.delivery_count - 1])

    def note_claim(
        self, claim: Claim, source: str, began_ns: int, headers: Mapping[str, str] = _NO_HEADERS
    ) -> None:
        """Tell that a task was claimed, and since when that was tried."""
        self._spans.claimed(claim, source, began_ns=began_ns, headers=headers)
        self._emit(
            AttemptStarted(
                claim.id, claim.task_type, claim.attempt, claim.trace_id, source, claim.queued_seconds
            )
        )

    async def put_off(self, delivery: Delivery, task_id: str, error: UnavailableError) -> None:
        """Give a delivery back for when Postgres answers again."""
        await self._defer(delivery, task_id, type(error).__name__, str(error), random.uniform(1.0, 5.0))

    async def _defer(
        self, delivery: Delivery, task_id: str, reason: str, detail: str, delay_seconds: float
    ) -> None:
        self._emit(DeliveryDeferred(task_id, reason, detail[:200], delay_seconds))
        await delivery.nak(delay_seconds)

    def _note_no_handler(self, task_id: str, task_type: str) -> None:
        if task_type not in self._without_handler and len(self._without_handler) < _MOST_WARNINGS:
            self._without_handler.add(task_type)
            self._emit(NoHandler(task_type, task_id, ", ".join(self._task_types)))


class Executor(Claimer):
    """Takes one task from its command to the ack; each step is a function of its own."""

    def __init__(
        self,
        *,
        claims: Claims,
        finishes: Finishes,
        leases: LeaseManager,
        handlers: Handlers,
        slots: Slots,
        dead_letters: DeadLetterQueue,
        envelope_limits: Limits,
        emit: Emit,
        spans: Spans = NO_SPANS,
    ) -> None:
        super().__init__(
            claims=claims,
            dead_letters=dead_letters,
            envelope_limits=envelope_limits,
            task_types=handlers.types,
            emit=emit,
            spans=spans,
        )
        self._finishes = finishes
        self._leases = leases
        self._handlers = handlers
        self._slots = slots

    async def follow(self, delivery: Delivery, source: str) -> None:
        """Run the task that a command names, if it can be claimed; ack after its end has committed."""
        wanted = await self.read(delivery)
        if wanted is None:
            return
        failpoint.reach("worker.before_claim")
        claim = await self.claim(wanted, delivery, source, token=delivery.token)
        if claim is None:
            return
        await self.run(claim)
        await delivery.ack()
        failpoint.reach("worker.acked")

    async def run(self, claim: Claim) -> None:
        """Run a claimed task and write its outcome, while its lease is kept."""
        current.begin(claim)
        with self._leases.hold(claim) as lease:
            failpoint.reach("worker.after_claim")
            started_at = time.monotonic()
            with self._spans.running(claim) as running:
                outcome, context = await self._handlers.run(claim, lease)
                running.note(outcome)
            failpoint.reach("worker.handler_ended")
            ended_ns = time.time_ns()
            finished = await self._write_aside(claim, outcome, lease, context)
            failpoint.reach("worker.finished")
            self._spans.finished(claim, finished.status, began_ns=ended_ns)
            self._note_finish(claim, outcome, finished, time.monotonic() - started_at)
            if lease.still_running is not None:
                await asyncio.wait([lease.still_running])

    async def _write_aside(self, claim: Claim, outcome: Outcome, lease: Lease, context: Context) -> Finished:
        """Write the outcome while another task runs in the slot, if nothing of this one does any more."""
        if lease.still_running is not None:
            return await self._write(claim, outcome, lease, context)
        with self._slots.lent():
            return await self._write(claim, outcome, lease, context)

    async def _write(self, claim: Claim, outcome: Outcome, lease: Lease, context: Context) -> Finished:
        """Write the outcome: once, and for as long as it takes to get an answer."""
        if context.finished is not None:
            return context.finished
        if context.finish is not None:
            # The handler's own transaction got no answer: it may have committed.
            written = await self._persist(partial(self._finishes.read_back, context.finish))
            if written is not None:
                return written
        if lease.is_lost:
            return Finished("lost")
        if outcome.verb is Verb.RELEASE:
            reason = "postgres_unavailable" if context.outage is not None else lease.ended or "shutdown"
            return await self._persist(partial(self._release, claim, reason))
        try:
            return await self._persist(partial(self._finishes.finish, Finish(claim, outcome, random_uuid())))
        except InvalidInputError as error:
            return await self._persist(
                partial(self._finishes.finish, Finish(claim, _unstorable(error), random_uuid()))
            )

    async def _persist(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Ask until there is an answer: the guard decides whether it is too late, not the clock."""
        pause = 0.02
        while True:
            try:
                return await ask()
            except UnavailableError:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    async def _release(self, claim: Claim, reason: str) -> Finished:
        verdict = (await self._finishes.release([claim], reason))[claim.id]
        if verdict == "locked":
            raise UnavailableError(f"task {claim.id} is locked by another transaction")
        self._emit(AttemptReleased(claim.id, claim.attempt, claim.trace_id, verdict))
        return Finished(verdict)

    def _note_finish(self, claim: Claim, outcome: Outcome, finished: Finished, run_seconds: float) -> None:
        if finished.is_lost:
            self._emit(LeaseLost(claim.id, claim.attempt, claim.trace_id, "finish"))
            return
        self._emit(
            AttemptFinished(
                claim.id, claim.task_type, claim.attempt, claim.trace_id, finished.status, run_seconds,
                finished.total_seconds, outcome.error_class,
            )
        )  # fmt: skip


def _unstorable(error: InvalidInputError) -> Outcome:
    return Outcome(
        Verb.FAIL,
        error='{"class": "bad_result", "message": "Postgres refuses what the handler returned or raised"}',
        error_class=error.code,
    )
