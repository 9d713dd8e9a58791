"""Run tasks, from their commands to their outcomes.

This is the guarantee of grns, in order: read the command, claim the task in Postgres, acknowledge the command
after the claim has committed (`claim_all`), run the handler while the lease is renewed, and write the outcome
(`run`). From the claim on the lease brings the task back: the leases of a lost worker expire, and the reaper
queues the tasks again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar
from uuid import UUID

from grns.dead_letters.queue import DeadLetterQueue
from grns.errors import (
    GrnsError,
    InvalidInputError,
    LeaseLostError,
    RejectedError,
    SealedError,
    UnavailableError,
)
from grns.model.json import Limits, dumps
from grns.model.outcome import Claim, Finished, Outcome, Unclaimed, Verb
from grns.model.task import command_id, random_uuid
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
from grns.worker.claims import Claims, payload_closed
from grns.worker.command import ExecuteCommand, read_command
from grns.worker.context import Context
from grns.worker.finishes import Finish, Finishes
from grns.worker.handler_runner import HandlerRunner
from grns.worker.leases import Lease, LeaseManager
from grns.worker.payloads import PASSING, Payloads, cannot_open
from grns.worker.slots import Slots

# Delays of redelivery for a task that its sender's transaction may not have committed yet.
UNKNOWN_TASK_DELAYS = (1.0, 2.0, 4.0, 8.0)
_LONGEST_PAUSE_SECONDS = 1.0
_CLOSED_SECONDS = 2.0  # for so long a task whose payload cannot be opened is kept: others find time
_MOST_WARNINGS, _MOST_DONE = 100, 10_000
_NO_HEADERS: Mapping[str, str] = {}

Answer = TypeVar("Answer")
OtherPoolCallback = Callable[[str, UUID, Delivery], Awaitable[None]]
UnfitCallback = Callable[[Unclaimed, Delivery], Awaitable[None]]


@dataclass(slots=True, kw_only=True, eq=False)
class Claimer:
    """Claims the tasks of commands, and settles the deliveries of commands that claim nothing."""

    claims: Claims
    dead_letters: DeadLetterQueue
    envelope_limits: Limits
    task_types: Sequence[str]
    emit: Emit
    spans: Spans = NO_SPANS
    # Each is called with the task type of a command that was refused because its task is paused.
    on_paused: list[Callable[[str], None]] = field(default_factory=list, init=False)
    _warned_types: set[str] = field(default_factory=set, init=False)

    def close(self) -> None:
        """Refuse further claims. Tasks that run are not affected."""
        self.claims.close()

    async def read(self, delivery: Delivery) -> ExecuteCommand | None:
        """Return the command, or None after rejecting a message that is not a valid command."""
        try:
            return read_command(delivery.body, subject=delivery.subject, limits=self.envelope_limits)
        except RejectedError as error:
            await self.dead_letters.reject(delivery, error.code, str(error))
            return None

    async def claim(
        self,
        command: ExecuteCommand,
        delivery: Delivery,
        source: str,
        *,
        on_other_pool: OtherPoolCallback | None = None,
        on_unfit: UnfitCallback | None = None,
    ) -> Claim | None:
        """Claim the task of a command, or return None after settling the delivery by the reason.

        Args:
            on_other_pool: Settles a command whose task belongs to another pool.
            on_unfit: Settles a command that others here may take: its task type has no handler, or the agent
                is full.
        """
        began_ns = time.time_ns()
        try:
            answer = await self.claims.claim(command.task_id, command.message_id)
        except UnavailableError as error:
            await self.defer(delivery, command.task_id, error)
            return None
        except InvalidInputError as error:
            await self.dead_letters.reject(delivery, error.code, str(error))
            return None
        if isinstance(answer, Unclaimed):
            if answer.reason == "other_agent_type" and on_other_pool is not None:
                await on_other_pool(command.task_id, command.message_id, delivery)
            elif answer.reason in ("no_handler", "agent_full") and on_unfit is not None:
                await on_unfit(answer, delivery)
            else:
                await self.refuse(answer, delivery)
            return None
        # Reading a header parses bytes that only spans need.
        headers = delivery.headers if self.spans.is_on else _NO_HEADERS
        self.note_claim(answer, source, began_ns, headers)
        return answer

    async def refuse(self, answer: Unclaimed, delivery: Delivery) -> None:
        """Settle a command that claimed nothing: ack it, unless a redelivery may claim the task."""
        self.emit(TaskNotClaimed(answer.id, answer.reason))
        if answer.reason == "no_handler" and answer.task_type is not None:
            self._note_no_handler(answer.id, answer.task_type)
        if answer.reason == "paused" and answer.task_type is not None:
            for callback in self.on_paused:
                callback(answer.task_type)
        if answer.reason in ("locked", "agent_full"):
            await self._defer(delivery, answer.id, answer.reason, "", 1.0)
        elif answer.reason == "stopping":
            await delivery.nak()  # for another worker, at once
        elif answer.reason != "unknown_task":
            await delivery.ack()
        elif delivery.delivery_count > len(UNKNOWN_TASK_DELAYS):
            await self.dead_letters.reject(delivery, "unknown_task", f"there is no task {answer.id}")
        else:
            await delivery.nak(UNKNOWN_TASK_DELAYS[delivery.delivery_count - 1])

    def note_claim(
        self, claim: Claim, source: str, began_ns: int, headers: Mapping[str, str] = _NO_HEADERS
    ) -> None:
        """Record a claim in the signals and as a span that began at `began_ns`."""
        self.spans.claimed(claim, source, began_ns=began_ns, headers=headers)
        self.emit(
            AttemptStarted(
                claim.id, claim.task_type, claim.attempt, claim.trace_id, source, claim.queued_seconds
            )
        )

    async def defer(self, delivery: Delivery, task_id: str, error: UnavailableError) -> None:
        """Return a delivery to the broker for some seconds, because Postgres does not answer."""
        await self._defer(delivery, task_id, type(error).__name__, str(error), random.uniform(1.0, 5.0))

    async def _defer(
        self, delivery: Delivery, task_id: str, reason: str, detail: str, delay_seconds: float
    ) -> None:
        self.emit(DeliveryDeferred(task_id, reason, detail[:200], delay_seconds))
        await delivery.nak(delay_seconds)

    def _note_no_handler(self, task_id: str, task_type: str) -> None:
        if task_type not in self._warned_types and len(self._warned_types) < _MOST_WARNINGS:
            self._warned_types.add(task_type)
            self.emit(NoHandler(task_type, task_id, ", ".join(self.task_types)))


@dataclass(slots=True, kw_only=True, eq=False)
class Executor(Claimer):
    """Runs tasks from their commands to their outcomes; each step is a method."""

    task_types: Sequence[str] = field(init=False)
    finishes: Finishes
    leases: LeaseManager
    handlers: HandlerRunner
    slots: Slots
    payloads: Payloads
    # Commands of tasks that hints named before: their claims have committed.
    _done_commands: OrderedDict[UUID, None] = field(default_factory=OrderedDict, init=False)

    def __post_init__(self) -> None:
        self.task_types = self.handlers.types

    async def claim_all(
        self, deliveries: Sequence[Delivery], source: str, start: Callable[[Claim], None]
    ) -> None:
        """Claim the tasks of commands in one statement, and start those that are claimed.

        A command is acknowledged after its claim has committed. A command that claims nothing is settled by
        the reason.
        """
        commands = await self._read_all(deliveries)
        if not commands:
            return
        failpoint.reach("worker.before_claim")
        began_ns = time.time_ns()
        try:
            answers = await self.claims.claim_many([command for command, _ in commands])
        except UnavailableError as error:
            for command, delivery in commands:
                await self.defer(delivery, command.task_id, error)
            return
        except InvalidInputError:  # Postgres refuses a value of one of them
            await self._claim_each(commands, source, start)
            return
        settled = [(answer, delivery) for answer, (_, delivery) in zip(answers, commands, strict=True)]
        claimed = [(answer, delivery) for answer, delivery in settled if isinstance(answer, Claim)]
        for claim, _ in claimed:  # before anything else can fail: a claim that never runs keeps its lease
            start(claim)
        for claim, delivery in claimed:
            self.note_claim(claim, source, began_ns, delivery.headers if self.spans.is_on else _NO_HEADERS)
            await self._ack(delivery)
        for answer, delivery in settled:
            if isinstance(answer, Unclaimed):
                await self.refuse(answer, delivery)

    async def claim_hinted(self, task_ids: Sequence[str], start: Callable[[Claim], None]) -> None:
        """Claim tasks that their submitter has named, before their commands come, and start them.

        What is not claimed is left to its command. The command of a claim is known by its id when it comes.
        """
        began_ns = time.time_ns()
        try:
            claims = await self.claims.claim_hinted(task_ids)
        except (UnavailableError, InvalidInputError):
            return
        for claim in claims:
            start(claim)
        for claim in claims:
            failpoint.reach("worker.hint_claimed")
            if claim.causation_id is not None:
                self._done_commands[command_id(claim.causation_id)] = None
            self.note_claim(claim, "hint", began_ns)
        while len(self._done_commands) > _MOST_DONE:
            self._done_commands.popitem(last=False)

    async def _read_all(self, deliveries: Sequence[Delivery]) -> list[tuple[ExecuteCommand, Delivery]]:
        commands: list[tuple[ExecuteCommand, Delivery]] = []
        for delivery in deliveries:
            command = await self.read(delivery)
            if command is None:
                continue
            if command.message_id in self._done_commands:
                del self._done_commands[command.message_id]
                await self._ack(delivery)
            else:
                commands.append((command, delivery))
        return commands

    async def _claim_each(
        self,
        commands: Sequence[tuple[ExecuteCommand, Delivery]],
        source: str,
        start: Callable[[Claim], None],
    ) -> None:
        for command, delivery in commands:
            claim = await self.claim(command, delivery, source)
            if claim is not None:
                start(claim)
                await self._ack(delivery)

    async def _ack(self, delivery: Delivery) -> None:
        """Acknowledge the command of a claim. If that fails, it comes again and is refused."""
        with suppress(GrnsError):
            failpoint.reach("worker.claimed_not_acked")
            await delivery.ack()
            failpoint.reach("worker.acked")

    async def run(self, claim: Claim) -> None:
        """Run the handler of a claimed task and write the outcome, while the lease is renewed."""
        current.begin(claim)
        with self.leases.hold(claim) as lease:
            failpoint.reach("worker.after_claim")
            if lease.is_over:  # another attempt may run: the handler does not begin
                await self._persist(
                    partial(self._release, claim, lease.ended or "deadline", have_begun=False)
                )
                return
            if not await self._open(claim):
                return
            started_at = time.monotonic()
            with self.spans.running(claim) as running:
                outcome, context = await self.handlers.run(claim, lease)
                running.note(outcome)
            failpoint.reach("worker.handler_ended")
            context._send_output()
            ended_ns = time.time_ns()
            finished = await self._write_outcome(claim, outcome, lease, context)
            failpoint.reach("worker.finished")
            context._end_output(is_suspended=outcome.suspension is not None and finished.status == "waiting")
            self.spans.finished(claim, finished.status, began_ns=ended_ns)
            self._note_finish(claim, outcome, finished, time.monotonic() - started_at)
            if lease.still_running is not None:
                await asyncio.wait([lease.still_running])

    async def _open(self, claim: Claim) -> bool:
        """Open a payload; without its key or its blob, give the task back for a worker that has it."""
        try:
            self.handlers.check_key(claim.task_type)
            await self.payloads.open(claim)
        except SealedError as error:
            self.emit(payload_closed(claim, error))
            if error.code in PASSING:
                await asyncio.sleep(_CLOSED_SECONDS)
                await self._persist(partial(self._release, claim, error.code, have_begun=False))
            else:
                ending = cannot_open(claim, error)
                await self._persist(partial(self.finishes.finish, Finish(claim, ending, random_uuid())))
            return False
        return True

    async def release(self, claim: Claim, reason: str) -> None:
        """Give a claimed task back before its handler has begun; the attempt does not count."""
        with self.leases.hold(claim):
            await self._persist(partial(self._release, claim, reason, have_begun=False))

    async def _write_outcome(
        self, claim: Claim, outcome: Outcome, lease: Lease, context: Context
    ) -> Finished:
        """Write the outcome. Lend the slot to another task meanwhile, unless the handler still runs."""
        if lease.still_running is not None:
            return await self._write(claim, outcome, lease, context)
        self.slots.lend()
        try:
            return await self._write(claim, outcome, lease, context)
        finally:
            self.slots.take_back()

    async def _write(self, claim: Claim, outcome: Outcome, lease: Lease, context: Context) -> Finished:
        """Finish or release the attempt, or look up what the handler's own transaction wrote."""
        if context.finished is not None:
            return context.finished
        if context.finish is not None:
            # The handler's own transaction got no answer and may have committed.
            finished = await self._persist(partial(self.finishes.read_back, context.finish))
            if finished is not None:
                return finished
        if lease.is_lost:
            return Finished("lost")
        if context._progress is not None:
            with suppress(LeaseLostError, InvalidInputError):  # the guard of the outcome tells it, too
                await self._persist(context._progress.flush)
        if outcome.verb is Verb.RELEASE:
            reason = "postgres_unavailable" if context.outage is not None else lease.ended or "shutdown"
            return await self._persist(partial(self._release, claim, reason))
        try:
            if outcome.suspension is not None:
                finish = Finish(claim, outcome, random_uuid())
                finished = await self._persist(partial(self.finishes.suspend, finish, outcome.suspension))
                if finished.status != "cancelled":
                    return finished
                outcome = Outcome(Verb.CANCEL)
            return await self._persist(partial(self.finishes.finish, Finish(claim, outcome, random_uuid())))
        except InvalidInputError as error:
            finish = Finish(claim, _unstorable(error), random_uuid())
            return await self._persist(partial(self.finishes.finish, finish))

    async def _persist(self, write: Callable[[], Awaitable[Answer]]) -> Answer:
        """Repeat a write until Postgres answers: the guard, not the clock, decides if the lease is lost."""
        pause = 0.02
        while True:
            try:
                return await write()
            except UnavailableError:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    async def _release(self, claim: Claim, reason: str, *, have_begun: bool = True) -> Finished:
        verdict = (await self.finishes.release([claim], reason, have_begun=have_begun))[claim.id]
        if verdict == "locked":
            raise UnavailableError(f"task {claim.id} is locked by another transaction")
        self.emit(AttemptReleased(claim.id, claim.attempt, claim.trace_id, verdict))
        return Finished(verdict)

    def _note_finish(self, claim: Claim, outcome: Outcome, finished: Finished, run_seconds: float) -> None:
        if finished.is_lost:
            self.emit(LeaseLost(claim.id, claim.attempt, claim.trace_id, "finish"))
            return
        self.emit(
            AttemptFinished(
                claim.id, claim.task_type, claim.attempt, claim.trace_id, finished.status, run_seconds,
                finished.total_seconds, outcome.error_class,
            )
        )  # fmt: skip


def _unstorable(error: InvalidInputError) -> Outcome:
    said = {"class": "bad_result", "message": "Postgres refuses what the handler returned or raised"}
    return Outcome(Verb.FAIL, error=dumps(said), error_class=error.code)
