"""How steps are read and recorded in Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from grns.errors import ContendedError, LeaseLostError
from grns.model.json import loads_stored
from grns.model.outcome import Claim
from grns.postgres.batch import Batch
from grns.postgres.database import Connection, Database, Session, run
from grns.worker.step import EventWait, NotRecordedError, RecordedStep
from grns.worker.steps import MANY_IDS, AttemptSteps


@dataclass(frozen=True, slots=True)
class NewStep:
    """A step to record: its value as JSON."""

    claim: Claim
    name: str
    kind: str
    value: str


class StepStore:
    """Reads and records steps; callers that wait at the same time share one statement."""

    def __init__(self, database: Database | Session, *, batch_limit: int) -> None:
        self._database = database
        self._batch: Batch[NewStep, tuple[str, str | None]] = Batch(self._send, limit=batch_limit)

    async def read(self, claim: Claim) -> list[RecordedStep]:
        """Return the steps of a task."""
        return await self._database.fetch(RecordedStep, "read_steps", claim.id, claim.workspace)

    async def record(self, claim: Claim, name: str, kind: str, value: str) -> str:
        """Record a step, and return the value that is kept: the first one.

        Raises LeaseLostError if the attempt does not own its task any more.
        """
        verdict, kept = await self._batch.ask(NewStep(claim, name, kind, value))
        if verdict == "lost":
            raise _lost(claim)
        if verdict != "recorded":
            raise ContendedError(f"task {claim.id} is locked by another transaction")
        return value if kept is None else kept

    async def take_signal(
        self, claim: Claim, step: str, name: str, *, digest: str | None = None, event: EventWait | None = None
    ) -> str | None:
        """Take a signal for a step, and return the value that is recorded; None if there is no signal.

        Raises LeaseLostError if the attempt does not own its task any more.
        """
        owner = _owner(claim)
        (row,) = await self._database.run("take_signal", *owner, step, name, digest)
        value: str | None = row["value"]
        found = {} if value is None else loads_stored(value)
        if "lost" in found:
            raise _lost(claim)
        if "locked" in found:
            raise ContendedError(f"task {claim.id} is locked by another transaction")
        if value is None and event is not None:  # what comes before the task waits is found when it begins to
            await self._database.run("await_event", *owner, step, event.kind, event.where, event.behind)
        return value

    async def _send(self, steps: Sequence[NewStep]) -> list[tuple[str, str | None]]:
        if len(steps) == 1:
            (one,) = steps
            if await self._database.run("record_step", *_owner(one.claim), one.name, one.kind, one.value):
                return [("recorded", None)]
        rows = await self._database.run("record_steps", *_columns(steps))
        return [(row["verdict"], row["value"]) for row in rows]


async def record_in(connection: Connection, step: NewStep) -> None:
    """Record a step inside the caller's transaction; any error must undo that transaction.

    Raises LeaseLostError if the attempt does not own its task any more.
    """
    (row,) = await run(connection, "record_steps", *_columns([step]))
    if row["verdict"] == "lost":
        raise _lost(step.claim)
    if row["verdict"] != "recorded" or row["value"] is not None:
        raise NotRecordedError


def _columns(steps: Sequence[NewStep]) -> tuple[Sequence[object], ...]:
    return (
        [one.claim.id for one in steps],
        [one.claim.attempt for one in steps],
        [one.claim.lease_id for one in steps],
        [one.claim.workspace for one in steps],
        [one.name for one in steps],
        [one.kind for one in steps],
        [one.value for one in steps],
    )


def _owner(claim: Claim) -> tuple[object, ...]:
    return claim.id, claim.attempt, claim.lease_id, claim.workspace


def _lost(claim: Claim) -> LeaseLostError:
    return LeaseLostError(f"attempt {claim.attempt} of task {claim.id} does not own it any more")


@dataclass(frozen=True, slots=True)
class StepRecorder:
    """Records a step in a transaction. Once that has committed, pass the text to `committed`."""

    steps: AttemptSteps
    place: str
    kind: str

    async def record(
        self, connection: Connection, value: Any, adapter: TypeAdapter[Any] | None = None
    ) -> str:
        """Record the value; LeaseLostError must undo the transaction."""
        text = self.steps._text(self.place, adapter, value, MANY_IDS if self.kind == "fan_out" else None)
        self.steps._admit(text)
        await record_in(connection, NewStep(self.steps._claim, self.place, self.kind, text))
        return text

    def committed(self, text: str) -> None:
        """Note that the transaction has committed."""
        self.steps._note(RecordedStep(self.place, self.kind, text))
