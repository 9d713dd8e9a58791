"""What agents over HTTP write of their attempts: that they go on, and how they ended.

All of it is a worker's: the statements, their guards, and what is told. Only that an agent's answer may get
lost on its way: so whatever ends an attempt may be said again, and is then answered as before.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar
from uuid import UUID

from grns.errors import ContendedError, LeaseLostError, OutcomeUnknownError, UnavailableError, UnusableError
from grns.gateway.registry import WorkerRegistry
from grns.model.claim_token import ClaimToken
from grns.model.failure import LONGEST_MESSAGE, clean, failed, normalize
from grns.model.outcome import Finished, Outcome, Verb
from grns.model.retry import MAX_BACKOFF_SECONDS, Backoff
from grns.postgres import audit_log as change
from grns.postgres.database import Database, Session
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import AttemptFailed, AttemptFinished, AttemptReleased, LeaseLost
from grns.worker.finishes import Finish, Finishes
from grns.worker.renewals import HeldLease, RenewResult, renew

_PATIENCE_SECONDS = 3.0
_PAUSE_SECONDS = 0.05
_PROGRESS_SECONDS = 1.0
_MOST_PROGRESS = 10_000
_RELEASED = "released"
_MOST_FRAMES, _LONGEST_FRAME = 5, 300
# As frames are kept of handlers: another line is no other failure.
_FRAME = re.compile(r"(.+):[0-9]+ in (.+)")

Answer = TypeVar("Answer")
# Lends what to write with: the caller decides what that may see.
Lend = Callable[[], AbstractAsyncContextManager[Database | Session]]


class HttpAttempts:
    """Renews and ends attempts. The statements themselves check each ticket: `LeaseLostError` where it is
    over."""

    def __init__(self, *, registry: WorkerRegistry, emit: Emit) -> None:
        self._registry = registry
        self._emit = emit
        self._progress = _Progress()

    async def renew(
        self, lend: Lend, ticket: ClaimToken, *, actor: str, progress: float | None, message: str | None
    ) -> bool:
        """Renew a lease, and return whether somebody asks for the end of its task; `LeaseLostError`.

        Progress is an event of the log, `evt.agent.<agent_type>.progress`: where it is another one than
        before, and once a second at most.
        """
        is_news = self._progress.is_news(ticket.lease_id, progress, message)

        async def ask(database: Database | Session) -> RenewResult:
            if not is_news:
                return await _renew(database, ticket)
            async with database.transaction() as connection:  # nobody ends the attempt in between
                verdict = await _renew(Session(connection), ticket)
                said = {"progress": progress, "message": message}
                await change.note(
                    connection,
                    workspace=ticket.workspace,
                    kind=f"evt.agent.{ticket.agent_type}.progress",
                    actor=actor,
                    payload={
                        "task_id": ticket.task_id,
                        "agent_id": ticket.agent_id,
                        "attempt": ticket.attempt,
                        **said,
                    },
                    task_id=ticket.task_id,
                )
                return verdict

        try:
            verdict = await _persist(lend, ask)
        except LeaseLostError:
            self._note_loss(ticket, "refused")
            raise
        if is_news:
            self._progress.note(ticket.lease_id, progress, message)
        self._registry.holds(ticket.workspace, ticket.agent_id, ticket.lease_id, ticket.lease_seconds)
        await self._registry.note(ticket.workspace, ticket.agent_id)
        return verdict.is_cancel_requested

    async def finish(self, lend: Lend, ticket: ClaimToken, outcome: Outcome) -> str:
        """Write what came of an attempt, and return the task's new status; `LeaseLostError`.

        The same ticket with an outcome of the same kind is answered as before, and nothing is written.
        """
        finish = Finish(ticket.claim(), outcome, ticket.event_id(outcome.verb.value))

        async def ask(database: Database | Session) -> Finished:
            finishes = Finishes(database, batch_limit=1)
            finished = await finishes.finish(finish)
            if finished.is_lost and not finish.is_unsure:
                finished = await finishes.read_back(finish) or finished
            return finished

        finished = await _persist(lend, ask, finish)
        self._note_end(ticket, finished.status)
        if finished.total_seconds is not None:  # else it had been written before
            self._emit(
                AttemptFinished(
                    ticket.task_id, ticket.task_type, ticket.attempt, ticket.trace_id, finished.status,
                    max(0.0, time.time() - ticket.claimed_at), finished.total_seconds, outcome.error_class,
                )
            )  # fmt: skip
        return finished.status

    async def fail(
        self,
        lend: Lend,
        ticket: ClaimToken,
        *,
        error_class: str,
        message: str,
        frames: Sequence[str] = (),
        is_final: bool = False,
        after_seconds: float | None = None,
    ) -> str:
        """Write that an attempt failed, as of a handler that raised; returns the task's status;
        `LeaseLostError`.

        A final failure is not tried again, any other one after `after_seconds`, or the usual backoff.
        """
        named, told = clean(error_class)[:255], clean(message)[:LONGEST_MESSAGE]
        lines = [frame[:_LONGEST_FRAME] for frame in frames[:_MOST_FRAMES]]
        backoff = Backoff().delay_seconds(ticket.claim().counted_attempts, random.random())
        outcome = failed(
            ticket.task_type,
            named,
            told,
            is_final=is_final,
            backoff_seconds=backoff if after_seconds is None else min(after_seconds, MAX_BACKOFF_SECONDS),
            lines=lines,
            places=[_place(line) for line in lines],
        )
        status = await self.finish(lend, ticket, outcome)
        self._emit(
            AttemptFailed(
                ticket.task_id, ticket.task_type, ticket.attempt, ticket.trace_id, named, told[:500], ""
            )
        )
        return status

    async def release(self, lend: Lend, ticket: ClaimToken, reason: str) -> str:
        """Give an attempt back without spending it, and return the task's new status; `LeaseLostError`."""
        claim, event_id = ticket.claim(), ticket.event_id(Verb.RELEASE.value)

        async def ask(database: Database | Session) -> tuple[str, bool]:
            finishes = Finishes(database, batch_limit=1)
            verdict = (await finishes.release([claim], reason, event_ids=[event_id]))[claim.id]
            if verdict == "locked":
                raise ContendedError(f"task {claim.id} is locked by another transaction")
            if verdict != "lost":
                return verdict, True
            before = await finishes.read_back(Finish(claim, Outcome(Verb.RELEASE), event_id))
            if before is None:
                return verdict, False
            return "queued" if before.status == _RELEASED else before.status, False

        verdict, is_new = await _persist(lend, ask)
        self._note_end(ticket, verdict)
        if is_new:
            self._emit(AttemptReleased(ticket.task_id, ticket.attempt, ticket.trace_id, verdict))
        return verdict

    def _note_end(self, ticket: ClaimToken, status: str) -> None:
        self._registry.ended(ticket.workspace, ticket.agent_id, ticket.lease_id)
        self._progress.forget(ticket.lease_id)
        if status == "lost":
            self._note_loss(ticket, "finish")
            raise _lost(ticket)

    def _note_loss(self, ticket: ClaimToken, reason: str) -> None:
        self._registry.ended(ticket.workspace, ticket.agent_id, ticket.lease_id)
        self._emit(LeaseLost(ticket.task_id, ticket.attempt, ticket.trace_id, reason))


class _Progress:
    """What agents have said last of their tasks, and when."""

    def __init__(self) -> None:
        self._said: OrderedDict[UUID, tuple[object, object, float]] = OrderedDict()

    def is_news(self, lease_id: UUID, progress: float | None, message: str | None) -> bool:
        """Say whether it is to be told."""
        if progress is None and message is None:
            return False
        *said, at = self._said.get(lease_id, (None, None, -_PROGRESS_SECONDS))
        return said != [progress, message] and time.monotonic() - at >= _PROGRESS_SECONDS

    def note(self, lease_id: UUID, progress: float | None, message: str | None) -> None:
        """Note that it was told."""
        self._said[lease_id] = (progress, message, time.monotonic())
        self._said.move_to_end(lease_id)
        if len(self._said) > _MOST_PROGRESS:
            self._said.popitem(last=False)

    def forget(self, lease_id: UUID) -> None:
        """Forget an attempt that has ended."""
        self._said.pop(lease_id, None)


async def _renew(database: Database | Session, ticket: ClaimToken) -> RenewResult:
    held = HeldLease(ticket.task_id, ticket.attempt, ticket.lease_id, ticket.workspace)
    (verdict,) = await renew(database, [held], ticket.lease_seconds)
    if verdict.verdict == "lost":
        raise _lost(ticket)
    if verdict.verdict == "locked":
        raise ContendedError(f"task {ticket.task_id} is locked by another transaction")
    return verdict


async def _persist(
    lend: Lend, ask: Callable[[Database | Session], Awaitable[Answer]], finish: Finish | None = None
) -> Answer:
    """Ask until there is an answer, for as long as whoever waits for it has patience."""
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            async with lend() as database:
                return await ask(database)
        except UnavailableError as error:
            if finish is not None and isinstance(error, OutcomeUnknownError):
                finish.is_unsure = True
            if isinstance(error, UnusableError) or time.monotonic() > give_up_at:
                raise
        await asyncio.sleep(_PAUSE_SECONDS)


def _lost(ticket: ClaimToken) -> LeaseLostError:
    return LeaseLostError(
        f"attempt {ticket.attempt} of task {ticket.task_id} has ended, or its lease has: it is another's now"
    )


def _place(frame: str) -> str:
    found = _FRAME.fullmatch(frame)
    return f"{found[1]}:{found[2]}" if found else normalize(frame)
