"""Finish and release attempts. Each statement is guarded by task, workspace, attempt and lease."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from grns.errors import ContendedError, LeaseLostError, OutcomeUnknownError, UnavailableError
from grns.model.outcome import Claim, Finished, Outcome, Suspension
from grns.model.task import random_uuid
from grns.postgres.batch import Batch
from grns.postgres.database import Connection, Database, Row, Session, run

_LOCKED_PAUSE_SECONDS = 0.02
_LOCKED_TRIES_IN_TRANSACTION = 100


@dataclass(slots=True)
class Finish:
    """One outcome to write. `event_id` is chosen before the first try, so that a finish whose answer was
    lost can be recognized; `is_unsure` is True if it must be looked up first."""

    claim: Claim
    outcome: Outcome
    event_id: UUID
    is_unsure: bool = False


class Finishes:
    """Writes outcomes; callers that wait at the same time share one statement."""

    def __init__(self, database: Database | Session, *, batch_limit: int) -> None:
        self._database = database
        self._batch: Batch[Finish, Finished] = Batch(self.finish_many, limit=batch_limit)

    async def finish(self, finish: Finish) -> Finished:
        """Write one outcome. After `UnavailableError`, call again with the same `Finish`."""
        finished = await self._batch.ask(finish)
        if finished.status == "locked":
            raise ContendedError(f"task {finish.claim.id} is locked by another transaction")
        return finished

    async def read_back(self, finish: Finish) -> Finished | None:
        """Return what an earlier finish with this event id wrote, or None. Write nothing."""
        rows = await self._read_back([finish])
        return _finished(rows[finish.event_id]) if rows else None

    async def suspend(self, finish: Finish, suspension: Suspension) -> Finished:
        """Let a task wait. `cancelled`: nothing was written, since a cancel was asked for."""
        claim = finish.claim
        if finish.is_unsure and (known := await self.read_back(finish)) is not None:
            return known
        try:
            (row,) = await self._database.run(
                "suspend", claim.id, claim.attempt, claim.lease_id, claim.workspace, finish.event_id,
                claim.causation_id, suspension.step, suspension.seconds, suspension.needed,
                suspension.required, suspension.signal, suspension.question,
            )  # fmt: skip
        except OutcomeUnknownError:
            finish.is_unsure = True
            raise
        verdict = row["verdict"]
        if verdict == "locked":
            raise ContendedError(f"task {claim.id} is locked by another transaction")
        if verdict == "lost" and finish.is_unsure:
            return await self.read_back(finish) or Finished(verdict)
        return Finished(verdict)

    async def release(
        self,
        claims: Sequence[Claim],
        reason: str,
        *,
        event_ids: Sequence[UUID] = (),
        have_begun: bool = True,
    ) -> dict[str, str]:
        """Release attempts so that they do not count; return the verdict per task id.

        Args:
            have_begun: Whether their handlers have begun. Of those, a task is forgiven only `max_attempts`.
            event_ids: Ids to look the release up by if its answer is lost. Defaults to random ids.
        """
        events = event_ids or [random_uuid() for _ in claims]
        rows = await self._database.run(
            "release", [claim.id for claim in claims], [claim.attempt for claim in claims],
            [claim.lease_id for claim in claims], events, reason, [claim.workspace for claim in claims],
            have_begun,
        )  # fmt: skip
        ids = dict(zip(events, (claim.id for claim in claims), strict=True))
        return {ids[row["event_id"]]: row["verdict"] for row in rows}

    async def finish_many(self, finishes: Sequence[Finish]) -> Sequence[Finished]:
        """Write outcomes in one statement; `locked` where another transaction has the row."""
        known = await self._read_back([finish for finish in finishes if finish.is_unsure])
        unwritten = [finish for finish in finishes if finish.event_id not in known]
        try:
            rows = await self._database.run("finish", *_columns(unwritten)) if unwritten else ()
        except OutcomeUnknownError:
            for finish in unwritten:
                finish.is_unsure = True
            raise
        known.update((row["event_id"], row) for row in rows)
        # The first try may have committed after the look-up, so that the second try lost to it.
        known.update(
            await self._read_back(
                [
                    finish
                    for finish in unwritten
                    if finish.is_unsure and known[finish.event_id]["verdict"] == "lost"
                ]
            )
        )
        return [_finished(known[finish.event_id]) for finish in finishes]

    async def _read_back(self, unsure: Sequence[Finish]) -> dict[UUID, Row]:
        if not unsure:
            return {}
        rows = await self._database.run(
            "read_finishes",
            [finish.claim.id for finish in unsure],
            [finish.event_id for finish in unsure],
            [finish.claim.workspace for finish in unsure],
        )
        return {row["event_id"]: row for row in rows}


async def finish_in(connection: Connection, finish: Finish) -> Finished:
    """Write one outcome inside the caller's transaction; `LeaseLostError` must undo that transaction."""
    for _ in range(_LOCKED_TRIES_IN_TRANSACTION):
        rows = await run(connection, "finish", *_columns([finish]))
        finished = _finished(rows[0])
        if finished.is_lost:
            raise LeaseLostError(
                f"attempt {finish.claim.attempt} of task {finish.claim.id} does not own it any more"
            )
        if finished.status != "locked":
            return finished
        await asyncio.sleep(_LOCKED_PAUSE_SECONDS)
    raise UnavailableError(f"task {finish.claim.id} stays locked by another transaction")


def _columns(finishes: Sequence[Finish]) -> tuple[Sequence[object], ...]:
    return (
        [finish.claim.id for finish in finishes],
        [finish.claim.attempt for finish in finishes],
        [finish.claim.lease_id for finish in finishes],
        [finish.event_id for finish in finishes],
        [finish.outcome.verb.value for finish in finishes],
        [finish.outcome.result for finish in finishes],
        _filled([finish.outcome.error for finish in finishes]),
        _filled([finish.outcome.error_class for finish in finishes]),
        _filled([finish.outcome.fingerprint for finish in finishes]),
        [finish.outcome.backoff_seconds for finish in finishes],
        [finish.claim.causation_id for finish in finishes],
        [finish.claim.workspace for finish in finishes],
        [finish.outcome.is_usual for finish in finishes]
        if any(one.outcome.is_usual for one in finishes)
        else [],
    )


def _filled(column: list[str | None]) -> list[str | None]:
    """Return a column, or [] if it holds only NULLs: `unnest` adds them, so that none is sent."""
    return [] if column.count(None) == len(column) else column


def _finished(row: Row) -> Finished:
    return Finished(row["verdict"], row["total_seconds"])
