"""What agents over HTTP write of their attempts: that they go on, and how they ended.

The statements, their guards and the signals are those of workers. Only that an agent's answer may get
lost on its way: so whatever ends an attempt may be said again, and is then answered as before.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from grns.errors import (
    ContendedError,
    InvalidInputError,
    LeaseLostError,
    OutcomeUnknownError,
    UnavailableError,
    UnusableError,
)
from grns.gateway.registry import WorkerRegistry
from grns.gateway.shared_writes import OpenDatabase, Renewal, SharedWrites, lost_error
from grns.model.claim_token import ClaimToken
from grns.model.failure import LONGEST_MESSAGE, clean, failed, normalize
from grns.model.outcome import Outcome, Verb
from grns.model.retry import MAX_BACKOFF_SECONDS, Backoff
from grns.model.secret import Scrubber
from grns.postgres.database import Database, Session
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import AttemptFailed, AttemptFinished, AttemptReleased, LeaseLost
from grns.worker.finishes import Finish, Finishes
from grns.worker.progress import Recorded, Report, merged, record

_PATIENCE_SECONDS = 3.0
_PAUSE_SECONDS = 0.05
_REPORT_SECONDS = 1.0
_MOST_REPORTS = 10_000
_RELEASED = "released"
_MOST_FRAMES, _LONGEST_FRAME = 5, 300
# As frames are kept of handlers: another line is no other failure.
_FRAME = re.compile(r"(.+):[0-9]+ in (.+)")

Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Turn:
    """What an attempt has reported and nothing has written yet, and when it was written last."""

    unsaved: Report = field(default_factory=Report)
    written_at: float = float("-inf")
    is_overdue: bool = False
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


class HttpAttempts:
    """Renews and ends attempts. The statements check each token: `LeaseLostError` where it is
    over."""

    def __init__(self, *, registry: WorkerRegistry, emit: Emit) -> None:
        self._registry = registry
        self._emit = emit
        self._shared = SharedWrites()
        self._turns: OrderedDict[UUID, _Turn] = OrderedDict()

    async def renew(
        self,
        open_database: OpenDatabase,
        token: ClaimToken,
        *,
        report: Callable[[], Awaitable[Report]] | None,
    ) -> Renewal:
        """Renew a lease, and write what the worker reports, once a second at most; `LeaseLostError`.

        `report` is asked once the lease is renewed, which does not wait for it.
        """

        try:
            renewal = await patiently(lambda: self._shared.renew(open_database, token))
            if report is not None:
                said = await report()
                # At once: an attempt has a limited number of them.
                if said.lines or said.usage:
                    noted = Report(lines=said.lines, usage=said.usage)
                    await persist(open_database, partial(_recorded, token=token, report=noted))
                if said.is_progress:
                    rest = replace(said, lines=None, usage=None)
                    is_overdue = await self._record(open_database, token, rest)
                    renewal = Renewal(renewal.is_cancel_requested, is_overdue)
        except LeaseLostError:
            self._note_loss(token, "refused")
            raise
        self._registry.holds(token.workspace, token.agent_id, token.lease_id, token.lease_seconds)
        order = await self._registry.note(token.workspace, token.agent_id)
        return replace(renewal, order=order)

    async def _record(self, open_database: OpenDatabase, token: ClaimToken, report: Report) -> bool:
        """Write a report, a second after the last one at least, together with those that come meanwhile."""
        turn = self._turns.setdefault(token.lease_id, _Turn())
        self._turns.move_to_end(token.lease_id)
        if len(self._turns) > _MOST_REPORTS:
            self._turns.popitem(last=False)
        turn.unsaved = merged(turn.unsaved, report)

        async with turn.writing:
            if turn.unsaved != Report():  # else another request has written this report, too
                await asyncio.sleep(turn.written_at + _REPORT_SECONDS - time.monotonic())
                unsaved, turn.unsaved = turn.unsaved, Report()
                write = partial(_recorded, token=token, report=unsaved)
                try:
                    turn.is_overdue = (await persist(open_database, write)).is_overdue
                except InvalidInputError:  # it would be refused again
                    raise
                except BaseException:
                    turn.unsaved = merged(unsaved, turn.unsaved)
                    raise
                turn.written_at = time.monotonic()
            return turn.is_overdue

    async def finish(self, open_database: OpenDatabase, token: ClaimToken, outcome: Outcome) -> str:
        """Write what came of an attempt, and return the task's new status; `LeaseLostError`.

        The same token with an outcome of the same kind gets the same answer, and nothing is written.
        """
        finish = Finish(token.claim(), outcome, token.event_id(outcome.verb.value))

        finished = await patiently(lambda: self._shared.finish(open_database, finish), finish)
        self.note_end(token, finished.status)
        if finished.total_seconds is not None:  # else it had been written before
            self._emit(
                AttemptFinished(
                    token.task_id, token.task_type, token.attempt, token.trace_id, finished.status,
                    max(0.0, time.time() - token.claimed_at), finished.total_seconds, outcome.error_class,
                )
            )  # fmt: skip
        return finished.status

    async def fail(
        self,
        open_database: OpenDatabase,
        token: ClaimToken,
        *,
        error_class: str,
        message: str,
        frames: Sequence[str] = (),
        is_final: bool = False,
        after_seconds: float | None = None,
        usual_seconds: float | None = None,
        scrubber: Scrubber | None = None,
    ) -> str:
        """Write that an attempt failed, as of a handler that raised; returns the task's status;
        `LeaseLostError`. `scrubber` removes the secrets of the attempt.

        A final failure is not tried again, any other one after `after_seconds`; or else after the backoff of
        the task, or `usual_seconds`, or the usual backoff.
        """
        error_class = clean(error_class, scrubber)[:255]
        message = clean(message, scrubber)[:LONGEST_MESSAGE]
        lines = [clean(frame, scrubber)[:_LONGEST_FRAME] for frame in frames[:_MOST_FRAMES]]
        backoff = after_seconds if after_seconds is not None else usual_seconds
        if backoff is None:
            backoff = Backoff().delay_seconds(token.claim().counted_attempts, random.random())
        outcome = failed(
            token.task_type,
            error_class,
            message,
            is_final=is_final,
            backoff_seconds=min(backoff, MAX_BACKOFF_SECONDS),
            is_usual=after_seconds is None,
            lines=lines,
            places=[_place(line) for line in lines],
        )
        status = await self.finish(open_database, token, outcome)
        self._emit(
            AttemptFailed(
                token.task_id,
                token.task_type,
                token.attempt,
                token.trace_id,
                error_class,
                message[:500],
                "",
            )
        )
        return status

    async def release(self, open_database: OpenDatabase, token: ClaimToken, reason: str) -> str:
        """Give an attempt back without spending it, and return the task's new status; `LeaseLostError`."""
        claim, event_id = token.claim(), token.event_id(Verb.RELEASE.value)

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

        verdict, is_new = await persist(open_database, ask)
        self.note_end(token, verdict)
        if is_new:
            self._emit(AttemptReleased(token.task_id, token.attempt, token.trace_id, verdict))
        return verdict

    def note_end(self, token: ClaimToken, status: str) -> None:
        """Note that an attempt has ended. Raises LeaseLostError if it was lost."""
        self._registry.ended(token.workspace, token.agent_id, token.lease_id)
        self._turns.pop(token.lease_id, None)
        if status == "lost":
            self._note_loss(token, "finish")
            raise lost_error(token)

    def _note_loss(self, token: ClaimToken, reason: str) -> None:
        self._registry.ended(token.workspace, token.agent_id, token.lease_id)
        self._emit(LeaseLost(token.task_id, token.attempt, token.trace_id, reason))


async def persist(
    open_database: OpenDatabase,
    ask: Callable[[Database | Session], Awaitable[Answer]],
    finish: Finish | None = None,
) -> Answer:
    """Ask the database until there is an answer, for as long as the client waits for it."""

    async def once() -> Answer:
        async with open_database() as database:
            return await ask(database)

    return await patiently(once, finish)


async def patiently(ask: Callable[[], Awaitable[Answer]], finish: Finish | None = None) -> Answer:
    """Ask until there is an answer, for as long as the client waits for it."""
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return await ask()
        except UnavailableError as error:
            if finish is not None and isinstance(error, OutcomeUnknownError):
                finish.is_unsure = True
            if isinstance(error, UnusableError) or time.monotonic() > give_up_at:
                raise
        await asyncio.sleep(_PAUSE_SECONDS)


def _place(frame: str) -> str:
    found = _FRAME.fullmatch(frame)
    return f"{found[1]}:{found[2]}" if found else normalize(frame)


async def _recorded(database: Database | Session, token: ClaimToken, report: Report) -> Recorded:
    (recorded,) = await record(database, [(token.claim(), report)])
    if recorded.verdict == "lost":
        raise lost_error(token)
    if recorded.verdict == "locked":
        raise ContendedError(f"task {token.task_id} is locked by another transaction")
    return recorded
